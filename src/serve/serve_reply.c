#include "serve/serve_reply.h"

#include "base/log.h"

#include <string.h>

weft_serve_reply weft_serve_json(unsigned status, json_t *json)
{
    return (weft_serve_reply){.status = json ? status : 500, .json = json};
}

weft_serve_reply weft_serve_error(unsigned status, const char *code, const char *field,
                                  const char *text)
{
    json_t *json = json_pack("{s:{s:s, s:s, s:s?, s:s?}}", "error", "message", text, "type",
                             status < 500 ? "invalid_request_error" : "server_error", "param",
                             field && *field ? field : NULL, "code", code);
    return weft_serve_json(status, json);
}

weft_serve_reply weft_serve_own_error(void)
{
    const weft_message_fields *at = weft_error_fields();
    const weft_message_class kind = weft_error_class();
    const char *text = weft_error_text();
    unsigned status = 500;
    if (kind == WEFT_MSG_REQUEST_INVALID || kind == WEFT_MSG_VIDEO_SIZE)
        status = 400;
    else if (kind == WEFT_MSG_QUEUE_TRANSITION)
        status = 409;
    else
        weft_warn_error(kind, "a request has failed");
    if (status == 500 && kind == WEFT_MSG_DISK_FULL)
        status = 507;
    if (status >= 500 || (at && at->file) || strchr(text, '/'))
        text = weft_message_cause(kind);
    return weft_serve_error(status, weft_message_id(kind), at ? at->key : NULL, text);
}
