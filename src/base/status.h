/* The status type of weft, and the error of the calling thread.
 *
 * A function that can fail returns weft_status and sets its outputs only on success. The function
 * that detects the error calls weft_error() once, with its class, the place and the values; callers
 * propagate with WEFT_TRY and may add a place with weft_error_at(). The error is kept per thread,
 * like errno. */
#ifndef WEFT_BASE_STATUS_H
#define WEFT_BASE_STATUS_H

#include "base/message.h"
#include "weft/types.h"

/* The return type: as an attribute of the function, because gcc has none for enum types. Locals
 * that hold a status are weft_status_code. */
#define weft_status __attribute__((warn_unused_result)) weft_status_code

/* Records an error of this thread and returns the status code of its class. The text is
 * printf-style, names the value and what to do, and has no trailing newline. Its place (file, line,
 * key) is printed before it and belongs into `at` alone:
 *   return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.file = path, .key = "data.fps"),
 *                     "%g is not above 0", fps); */
weft_status_code weft_error(weft_message_class kind, const weft_message_fields *at, const char *fmt,
                            ...) __attribute__((format(printf, 3, 4)));
/* Reports a failed call of the C library. The class follows from errno (file-not-found, disk-full,
 * permission-denied, out-of-memory, else file-io), and the text ends with strerror. */
weft_status_code weft_error_errno(const weft_message_fields *at, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Records "out of memory for <text>". The text names the object, as in "the graph". */
weft_status_code weft_no_memory(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Complete the last error in callers that know its place or remedy. Both return `code` unchanged,
 * and do nothing for WEFT_OK: `return weft_error_at(read(path), WEFT_AT(.file = path));`.
 * weft_error_at completes the place: members that the error has already are kept, and another file
 * is printed before it. weft_error_add appends ". <text>". */
weft_status_code weft_error_at(weft_status_code code, const weft_message_fields *at);
weft_status_code weft_error_add(weft_status_code code, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* This thread's last error. Before the first error messages are "" and classes WEFT_MSG_NONE. The
 * returned pointer is valid until the next error. */
const char *
weft_error_message(void);          /* location and message: "run.yaml:12: data.fps: 0 is not ..." */
const char *weft_error_text(void); /* the message without its location */
weft_message_class weft_error_class(void);
const weft_message_fields *weft_error_fields(void);
/* Forgets it. */
void weft_error_clear(void);
/* A copy for another thread (heap, free with weft_free; NULL: out of memory), and the same error as
 * this thread's last one. Returns its status; WEFT_E_MEMORY for NULL. */
typedef struct weft_error_copy weft_error_copy;
weft_error_copy *weft_error_save(void);
weft_status_code weft_error_restore(const weft_error_copy *error);

const char *weft_status_name(weft_status_code code);

/* The first failure of two calls, or WEFT_OK. For a call that is made even after a failure, as to
 * close a file. */
static inline weft_status weft_status_first(weft_status_code first, weft_status_code second)
{
    return first != WEFT_OK ? first : second;
}

/* One idiom for errors. A function that has nothing to release propagates with WEFT_TRY. A function
 * that has declares `weft_status_code status = WEFT_OK;`, propagates with WEFT_GO and releases
 * everything after the label `out`, which success reaches, too. */
#define WEFT_TRY(expr)                                                                             \
    do {                                                                                           \
        weft_status_code weft_try_status_ = (expr);                                                \
        if (weft_try_status_ != WEFT_OK)                                                           \
            return weft_try_status_;                                                               \
    } while (0)

#define WEFT_GO(expr)                                                                              \
    do {                                                                                           \
        status = (expr);                                                                           \
        if (status != WEFT_OK)                                                                     \
            goto out;                                                                              \
    } while (0)

/* WEFT_OK if the pointers were allocated, else WEFT_E_MEMORY after weft_no_memory() with the text,
 * which is printf-style and names the object. Its values are evaluated only then.
 *   WEFT_TRY(WEFT_ALLOCATED(from && to, "the order of %" PRId64 " tasks", count)); */
#define WEFT_ALLOCATED(pointers, ...)                                                              \
    ((pointers) ? WEFT_OK : ((void)weft_no_memory(__VA_ARGS__), WEFT_E_MEMORY))

#endif
