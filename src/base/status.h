/* The one status type of weft.
 *
 * A function that can fail returns weft_status and sets its outputs only on success. Who decides
 * the error calls weft_fail() once, with the values; callers propagate with WEFT_TRY and may add
 * where they were with weft_fail_context(). The message is kept per thread, like errno. */
#ifndef WEFT_BASE_STATUS_H
#define WEFT_BASE_STATUS_H

/* Grouped by what must be rebuilt before trying again. */
typedef enum weft_status_code {
    WEFT_OK = 0,
    /* the call or its input: fix the argument, the file or the config */
    WEFT_E_ARG,         /* a value outside its range, an unknown name */
    WEFT_E_CONFIG,      /* config file or --set: unknown key, wrong type */
    WEFT_E_FORMAT,      /* a file's content is damaged or not what it says it is */
    WEFT_E_TOO_LARGE,   /* a file asks for more memory than it may have */
    WEFT_E_SHAPE,       /* tensor shapes or dtypes do not fit */
    WEFT_E_UNSUPPORTED, /* legal, but not built in */
    WEFT_E_NOT_FOUND,
    WEFT_E_INFEASIBLE, /* no plan satisfies the limits */
    /* the environment: free room, rights */
    WEFT_E_IO,
    WEFT_E_SPACE, /* disk full */
    WEFT_E_PERMISSION,
    WEFT_E_MEMORY,
    /* the op */
    WEFT_E_NUMERIC, /* NaN, Inf, a loss that left its range */
    /* the communicator: it must be made anew */
    WEFT_E_COMM, /* a rank is gone or a deadline passed */
    /* the job */
    WEFT_E_CANCELLED, /* interrupted by the user */
    WEFT_E_INTERNAL,  /* a bug in weft */
} weft_status_code;

/* The return type: as an attribute of the function, because gcc has none for enum types. Locals
 * that hold a status are weft_status_code. */
#define weft_status __attribute__((warn_unused_result)) weft_status_code

/* Records the message for this thread and returns `code`. printf-style; no trailing newline.
 * Messages name the file, line, value and what to do. */
weft_status_code weft_fail(weft_status_code code, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Records "<strerror>" after the formatted text, and maps errno to IO, SPACE, PERMISSION, ... */
weft_status_code weft_fail_errno(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Puts "<context>: " before the recorded message; returns `code` unchanged. */
weft_status_code weft_fail_context(weft_status_code code, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Puts ". <remedy>" after the recorded message; returns `code` unchanged. */
weft_status_code weft_fail_remedy(weft_status_code code, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The message of this thread's last failure; "" if none. Valid until the next failure. */
const char *weft_error_message(void);
const char *weft_status_name(weft_status_code code);

#define WEFT_TRY(expr)                                                                             \
    do {                                                                                           \
        weft_status_code weft_try_status_ = (expr);                                                \
        if (weft_try_status_ != WEFT_OK)                                                           \
            return weft_try_status_;                                                               \
    } while (0)

/* With a cleanup label: keeps the first error in a local `status`. */
#define WEFT_GO(expr)                                                                              \
    do {                                                                                           \
        status = (expr);                                                                           \
        if (status != WEFT_OK)                                                                     \
            goto out;                                                                              \
    } while (0)

#endif
