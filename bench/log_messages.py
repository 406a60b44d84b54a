"""Messages of weft with WEFT_LOG_FORMAT=json, by id and fields. Used by benchmarks."""
import json


def messages(text, ident, *names):
    """Messages of this class that have all these fields, also those of "details"."""
    found = []
    for line in text.splitlines():
        try:
            # the launcher may have put a rank before the message
            message = json.loads(line[line.index("{"):])
        except ValueError:
            continue
        if isinstance(message, dict) and message.get("id") == ident:
            message.update(message.pop("details", {}))
            if all(name in message for name in names):
                found.append(message)
    return found


def last(text, ident, *names):
    """The last such message. None: no message."""
    found = messages(text, ident, *names)
    return found[-1] if found else None
