#include "serve/serve_reply.h"

#include "base/log.h"
#include "serve/shown_text.h"

weft_serve_reply weft_serve_json(unsigned status, json_t *json)
{
    return (weft_serve_reply){.status = json ? status : 500, .json = json};
}

weft_serve_reply weft_serve_error(unsigned status, const char *code, const char *field,
                                  const char *text)
{
    char message[4096], param[512]; /* a text that is not UTF-8 would have no JSON */
    weft_shown_text_copy(message, sizeof message, text);
    weft_shown_text_copy(param, sizeof param, field ? field : "");
    json_t *json = json_pack("{s:{s:s, s:s, s:s?, s:s?}}", "error", "message", message, "type",
                             status < 500 ? "invalid_request_error" : "server_error", "param",
                             *param ? param : NULL, "code", code);
    return weft_serve_json(status, json);
}

weft_serve_reply weft_serve_own_error(void)
{
    const weft_message_fields *at = weft_error_fields();
    const weft_message_class kind = weft_error_class();
    const char *text = weft_error_text();
    unsigned status = 500;
    if (kind == WEFT_MSG_REQUEST_INVALID || kind == WEFT_MSG_VIDEO_SIZE ||
        kind == WEFT_MSG_VIDEO_INPUT)
        status = 400;
    else if (kind == WEFT_MSG_QUEUE_TRANSITION)
        status = 409;
    else
        weft_warn_error(kind, "a request has failed");
    if (status == 500 && kind == WEFT_MSG_DISK_FULL)
        status = 507;
    if (status >= 500 || (at && at->file))
        text = weft_message_cause(kind);
    return weft_serve_error(status, weft_message_id(kind), at ? at->key : NULL, text);
}
