#include "base/status.h"

#include "base/location.h"
#include "base/memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 4096, LOCATION_BYTES = 1024, MESSAGE_BYTES = TEXT_BYTES + LOCATION_BYTES };

/* An error as its thread keeps it; `at` points into the text members. */
struct weft_error_copy {
    weft_status_code code;
    weft_message_class kind;
    weft_message_fields at;
    char file[LOCATION_BYTES], key[512], value[512];
    weft_message_detail detail[WEFT_MESSAGE_DETAILS + 1];
    char word[WEFT_MESSAGE_DETAILS][128]; /* texts of details */
    char context[LOCATION_BYTES];         /* further locations, printed before `at` */
    char text[TEXT_BYTES];
    char message[MESSAGE_BYTES + LOCATION_BYTES]; /* context, location and text */
};
static _Thread_local weft_error_copy last;

static void copy_text(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from ? from : "");
}

/* Copies the details of `from` to `last`; `from` may point into it. */
static void copy_details(const weft_message_detail *from)
{
    weft_message_detail detail[WEFT_MESSAGE_DETAILS + 1] = {{NULL}};
    char word[WEFT_MESSAGE_DETAILS][sizeof last.word[0]];
    int count = 0;
    for (; from && from[count].name && count < WEFT_MESSAGE_DETAILS; count++) {
        detail[count] = from[count];
        copy_text(word[count], sizeof word[count], from[count].text);
        detail[count].text = from[count].text ? last.word[count] : NULL;
    }
    memcpy(last.word, word, (size_t)count * sizeof word[0]);
    memcpy(last.detail, detail, sizeof detail);
    last.at.details = count ? last.detail : NULL;
}

/* `at` may point into `last`. */
static void copy_fields(const weft_message_fields *at)
{
    const weft_message_fields from = at ? *at : (weft_message_fields){0};
    char file[sizeof last.file], key[sizeof last.key], value[sizeof last.value];
    copy_text(file, sizeof file, from.file);
    copy_text(key, sizeof key, from.key);
    copy_text(value, sizeof value, from.value);
    memcpy(last.file, file, sizeof file);
    memcpy(last.key, key, sizeof key);
    memcpy(last.value, value, sizeof value);
    last.at = from;
    last.at.file = file[0] ? last.file : NULL;
    last.at.key = key[0] ? last.key : NULL;
    last.at.value = from.value ? last.value : NULL;
    copy_details(from.details);
}

static void render(void)
{
    char location[LOCATION_BYTES + 600];
    snprintf(last.message, sizeof last.message, "%s%s%s", last.context,
             weft_message_location(&last.at, location, sizeof location), last.text);
}

static weft_status_code record(weft_status_code code, weft_message_class kind,
                               const weft_message_fields *at, const char *text)
{
    copy_fields(at);
    last.code = code;
    last.kind = kind;
    last.context[0] = '\0';
    copy_text(last.text, sizeof last.text, text);
    render();
    return code;
}

weft_status_code weft_error(weft_message_class kind, const weft_message_fields *at, const char *fmt,
                            ...)
{
    char text[TEXT_BYTES]; /* the arguments may point into `last` */
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return record((weft_status_code)weft_message_status(kind), kind, at, text);
}

static weft_message_class class_of_errno(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT: return WEFT_MSG_DISK_FULL;
    case EACCES:
    case EPERM:
    case EROFS: return WEFT_MSG_PERMISSION_DENIED;
    case ENOENT: return WEFT_MSG_FILE_NOT_FOUND;
    case ENOMEM: return WEFT_MSG_OUT_OF_MEMORY;
    default: return WEFT_MSG_FILE_IO;
    }
}

static weft_status_code record_errno(int error, const weft_message_fields *at, const char *text)
{
    const weft_message_class kind = class_of_errno(error);
    const char *remedy = "";
    if (kind == WEFT_MSG_FILE_NOT_FOUND && at && at->file && weft_location_is_remote(at->file))
        return weft_location_check_local(at->file, at->key);
    if (kind == WEFT_MSG_DISK_FULL)
        remedy = "; free some space there or choose another folder";
    else if (kind == WEFT_MSG_PERMISSION_DENIED)
        remedy = "; check the owner and mode of the file and its folder";
    char whole[TEXT_BYTES];
    snprintf(whole, sizeof whole, "%s: %s%s", text, strerror(error), remedy);
    return record((weft_status_code)weft_message_status(kind), kind, at, whole);
}

weft_status_code weft_error_errno(const weft_message_fields *at, const char *fmt, ...)
{
    const int error = errno;
    char text[TEXT_BYTES - 256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return record_errno(error, at, text);
}

weft_status_code weft_no_memory(const char *fmt, ...)
{
    char text[TEXT_BYTES] = "out of memory for ";
    const size_t used = strlen(text);
    va_list args;
    va_start(args, fmt);
    vsnprintf(text + used, sizeof text - used, fmt, args);
    va_end(args);
    return record(WEFT_E_MEMORY, WEFT_MSG_OUT_OF_MEMORY, NULL, text);
}

static void prepend_context(const char *location)
{
    char before[sizeof last.context];
    copy_text(before, sizeof before, last.context);
    snprintf(last.context, sizeof last.context, "%.400s%.600s", location, before);
}

weft_status_code weft_error_at(weft_status_code code, const weft_message_fields *at)
{
    if (code == WEFT_OK)
        return code;
    weft_message_fields both = last.at;
    if (last.at.file && at->file && strcmp(last.at.file, at->file) != 0) {
        char location[LOCATION_BYTES + 600];
        prepend_context(weft_message_location(at, location, sizeof location));
    } else {
        both.file = both.file ? both.file : at->file;
        both.line = both.line ? both.line : at->line;
        both.key = both.key ? both.key : at->key;
        both.value = both.value ? both.value : at->value;
    }
    if (!both.has_rank && at->has_rank) {
        both.has_rank = true;
        both.rank = at->rank;
    }
    copy_fields(&both);
    render();
    return code;
}

weft_status_code weft_error_add(weft_status_code code, const char *fmt, ...)
{
    if (code == WEFT_OK)
        return code;
    char text[TEXT_BYTES / 2], whole[TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const size_t length = strlen(last.text);
    const bool period = length > 0 && last.text[length - 1] == '.';
    snprintf(whole, sizeof whole, "%.*s%s %s", TEXT_BYTES / 2 - 8, last.text, period ? "" : ".",
             text);
    copy_text(last.text, sizeof last.text, whole);
    render();
    return code;
}

const char *weft_error_message(void)
{
    return last.message;
}

const char *weft_error_text(void)
{
    return last.text;
}

weft_message_class weft_error_class(void)
{
    return last.kind;
}

const weft_message_fields *weft_error_fields(void)
{
    return &last.at;
}

void weft_error_clear(void)
{
    record(WEFT_OK, WEFT_MSG_NONE, NULL, "");
}

weft_error_copy *weft_error_save(void)
{
    weft_error_copy *copy = weft_alloc((int64_t)sizeof *copy);
    if (copy)
        *copy = last;
    return copy;
}

weft_status_code weft_error_restore(const weft_error_copy *error)
{
    WEFT_TRY(WEFT_ALLOCATED(error, "an error message"));
    weft_message_fields at = error->at;
    at.file = at.file ? error->file : NULL;
    at.key = at.key ? error->key : NULL;
    at.value = at.value ? error->value : NULL;
    weft_message_detail detail[WEFT_MESSAGE_DETAILS + 1];
    memcpy(detail, error->detail, sizeof detail);
    for (int i = 0; i < WEFT_MESSAGE_DETAILS; i++)
        detail[i].text = detail[i].text ? error->word[i] : NULL;
    at.details = at.details ? detail : NULL;
    record(error->code, error->kind, &at, error->text);
    copy_text(last.context, sizeof last.context, error->context);
    render();
    return error->code;
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
