#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 4096 };
static _Thread_local char message[MESSAGE_BYTES];

weft_status_code weft_fail(weft_status_code code, const char *fmt, ...)
{
    char text[MESSAGE_BYTES]; /* the arguments may point into `message` */
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    memcpy(message, text, sizeof text);
    return code;
}

weft_status_code weft_fail_errno(const char *fmt, ...)
{
    const int error = errno;
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    weft_status_code code = WEFT_E_IO;
    const char *remedy = "";
    switch (error) {
    case ENOSPC:
    case EDQUOT:
        code = WEFT_E_SPACE;
        remedy = "; free some space there or choose another folder";
        break;
    case EACCES:
    case EPERM:
    case EROFS:
        code = WEFT_E_PERMISSION;
        remedy = "; check the owner and mode of the file and its folder";
        break;
    case ENOENT: code = WEFT_E_NOT_FOUND; break;
    case ENOMEM: code = WEFT_E_MEMORY; break;
    default: break;
    }
    return weft_fail(code, "%s: %s%s", text, strerror(error), remedy);
}

weft_status_code weft_fail_context(weft_status_code code, const char *fmt, ...)
{
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return weft_fail(code, "%s: %s", text, message);
}

weft_status_code weft_fail_remedy(weft_status_code code, const char *fmt, ...)
{
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return weft_fail(code, "%s. %s", message, text);
}

const char *weft_error_message(void)
{
    return message;
}

const char *weft_status_name(weft_status_code code)
{
    switch (code) {
    case WEFT_OK: return "ok";
    case WEFT_E_ARG: return "bad argument";
    case WEFT_E_CONFIG: return "bad config";
    case WEFT_E_FORMAT: return "bad file";
    case WEFT_E_TOO_LARGE: return "file too large";
    case WEFT_E_SHAPE: return "bad shape";
    case WEFT_E_UNSUPPORTED: return "unsupported";
    case WEFT_E_NOT_FOUND: return "not found";
    case WEFT_E_INFEASIBLE: return "infeasible";
    case WEFT_E_IO: return "input/output error";
    case WEFT_E_SPACE: return "no space left";
    case WEFT_E_PERMISSION: return "no permission";
    case WEFT_E_MEMORY: return "out of memory";
    case WEFT_E_NUMERIC: return "numeric error";
    case WEFT_E_COMM: return "communication error";
    case WEFT_E_CANCELLED: return "cancelled";
    case WEFT_E_INTERNAL: return "internal error";
    }
    return "unknown status";
}
