/* The functions of weft/core.h that src/base does not have. */
#include "weft/core.h"

#include "api/sized.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"

#include <omp.h>

const char *weft_version(void)
{
    return WEFT_VERSION;
}

/* ---- errors ---------------------------------------------------------------------------------- */

weft_status_code weft_error_get(weft_error_info *info)
{
    const weft_message_class kind = weft_error_class();
    const weft_message_fields *at = weft_error_fields();
    const weft_error_info filled = {
        .status = (weft_status_code)weft_message_status(kind),
        .id = weft_message_id(kind),
        .message = weft_error_message(),
        .text = weft_error_text(),
        .file = at->file,
        .line = at->line,
        .key = at->key,
        .value = at->value,
        .number = at->number,
        .has_number = at->has_number,
        .rank = at->has_rank ? at->rank : -1,
        .cause = weft_message_cause(kind),
        .remedy = weft_message_remedy(kind),
    };
    return weft_sized_write(info, &filled, sizeof filled, "info");
}

weft_status_code weft_error_set(const char *id, const char *text)
{
    const weft_message_class kind = weft_message_find(id);
    if (kind == WEFT_MSG_NONE)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = "id", .value = id),
                          "no class of messages has the id \"%s\"", id);
    if (weft_message_status(kind) == WEFT_OK)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = "id", .value = id),
                          "\"%s\" is the class of a warning or an event", id);
    return weft_error(kind, WEFT_NOWHERE, "%s", text);
}

/* ---- log and progress ------------------------------------------------------------------------ */

/* The callbacks of the process, and the receiver that src/base/log.c calls. */
static struct {
    weft_log_receiver receiver;
    weft_log_callback *log;
    weft_progress_callback *progress;
} hooks;

static void pass_message(void *user, weft_log_level level, weft_message_class kind,
                         const weft_message_fields *at, const char *text)
{
    weft_log_message message = {
        .size = sizeof message, .level = level, .id = weft_message_id(kind), .text = text};
    if (at) {
        message.file = at->file;
        message.line = at->line;
        message.key = at->key;
        message.value = at->value;
    }
    hooks.log(user, &message);
}

static void pass_progress(void *user, const char *title, int64_t done, int64_t total,
                          double seconds_left, const char *detail, bool finished)
{
    const weft_progress_report report = {.size = sizeof report,
                                         .title = title,
                                         .detail = detail,
                                         .done = done,
                                         .total = total,
                                         .seconds_left = seconds_left,
                                         .finished = finished};
    hooks.progress(user, &report);
}

void weft_log_set_callback(weft_log_callback *callback, void *user)
{
    hooks.log = callback;
    hooks.receiver.has_message = callback != NULL;
    hooks.receiver.message = callback ? pass_message : NULL;
    hooks.receiver.message_user = user;
    weft_log_set_receiver(&hooks.receiver);
}

void weft_progress_set_callback(weft_progress_callback *callback, void *user)
{
    hooks.progress = callback;
    hooks.receiver.has_progress = callback != NULL;
    hooks.receiver.progress = callback ? pass_progress : NULL;
    hooks.receiver.progress_user = user;
    weft_log_set_receiver(&hooks.receiver);
}

/* ---- memory and threads ---------------------------------------------------------------------- */

weft_status_code weft_allocator_set(const weft_allocator *allocator)
{
    weft_allocator own;
    if (!allocator)
        return weft_memory_set_source(NULL);
    WEFT_TRY(WEFT_SIZED_READ(own, allocator));
    if (!own.allocate || !own.reallocate || !own.release)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = "allocator"),
                          "allocate, reallocate and release must all be set");
    const weft_memory_source source = {
        .alloc = own.allocate, .realloc = own.reallocate, .free = own.release, .user = own.user};
    return weft_memory_set_source(&source);
}

weft_status_code weft_memory_describe(weft_memory_info *info)
{
    const weft_memory_info filled = {.available = weft_memory_available(),
                                     .resident = weft_memory_resident(),
                                     .peak = weft_memory_peak()};
    return weft_sized_write(info, &filled, sizeof filled, "info");
}

weft_status_code weft_threads_set(int threads)
{
    if (threads < 1)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID,
                          WEFT_AT(.key = "threads", WEFT_NUMBER(threads)),
                          "%d threads; expected 1 or more", threads);
    omp_set_num_threads(threads);
    return WEFT_OK;
}
