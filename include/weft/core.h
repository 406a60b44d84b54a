/* weft as a library: version, errors, log, memory and threads.
 *
 * Conventions of all headers:
 *
 * - A function that can fail returns weft_status_code and sets its outputs only on success. The
 *   error of the calling thread has the details (weft_error_get).
 * - Handles are opaque. The function that creates one is documented with the function that frees
 *   it, which accepts NULL. Strings and arrays that are passed in are copied unless the comment
 *   says "borrowed". Pointers that are returned belong to the handle unless the comment says
 *   "heap": those are freed with weft_free.
 * - Sizes and counts are int64_t. Sizes of memory are in bytes, times in seconds. Shapes are
 *   written with letters: B batch, T frames, Y rows, X columns, C channels, S tokens.
 * - Threads: functions on different handles may run at the same time. A handle is used by one
 *   thread at a time, except where its comment says "thread-safe".
 * - Structs that begin with `size` are sized: initialise them with WEFT_INIT. Members of zero are
 *   the defaults. An older library accepts a larger struct if the members that it does not know
 *   are zero. Otherwise it returns WEFT_E_UNSUPPORTED. A newer library gives members that a
 *   smaller struct lacks their defaults.
 *
 * Stability: enumerators keep their values, sized structs only grow at their end, and functions
 * keep their signatures as long as the SONAME libweft.so.0 stays. libweft.so exports exactly the
 * functions of the public headers. */
#ifndef WEFT_CORE_H
#define WEFT_CORE_H

#include "weft/types.h"

#define WEFT_VERSION_MAJOR  0
#define WEFT_VERSION_MINOR  2
#define WEFT_VERSION_PATCH  0
#define WEFT_VERSION_STRING "0.2.0"

/* A sized struct with its defaults: weft_compile_options options = WEFT_INIT(weft_compile_options);
 */
#ifdef __cplusplus
template <typename weft_sized> inline weft_sized weft_init_sized()
{
    weft_sized options = weft_sized();
    options.size = sizeof options;
    return options;
}
#define WEFT_INIT(type) weft_init_sized<type>()
extern "C" {
#else
#define WEFT_INIT(type)                                                                            \
    {                                                                                              \
        .size = sizeof(type)                                                                       \
    }
#endif

/* Version of the library in use: "0.2.0". WEFT_VERSION_STRING is the version of the header.
 * Thread-safe. */
const char *weft_version(void);

/* ---- errors ---------------------------------------------------------------------------------- */

/* The last error of the calling thread. Strings are valid until the thread's next error. */
typedef struct weft_error_info {
    size_t size;
    weft_status_code status; /* WEFT_OK: no error so far */
    const char *id;          /* class of the error, "file-not-found"; stable between versions */
    const char *message;     /* place and text: "run.yaml:12: data.fps: 0 is not above 0" */
    const char *text;        /* the message without its place */
    const char *file;        /* NULL: none */
    int64_t line;            /* line number from 1, or 0 */
    const char *key;         /* config key, tensor or option; NULL: none */
    const char *value;       /* the wrong value, as text; NULL: none */
    double number;           /* the wrong value, as a number; valid with has_number */
    int has_number;
    int rank;           /* rank of the job; -1: none */
    const char *cause;  /* cause of errors of this class, one sentence; "": none */
    const char *remedy; /* remedy, one sentence; "": none */
} weft_error_info;

/* Writes the last error of the calling thread into *info, up to info->size bytes. Thread-safe. */
weft_status_code weft_error_get(weft_error_info *info);
/* Message of the last error of the calling thread, "" before the first one. Valid until the
 * thread's next error. Thread-safe. */
const char *weft_error_message(void);
/* Records an error of the class `id` and returns its status code. A callback calls it before it
 * returns an error. WEFT_E_ARG: no such class. Thread-safe. */
weft_status_code weft_error_set(const char *id, const char *text);

/* ---- log and progress ------------------------------------------------------------------------ */

/* A message. All pointers are valid during the callback only. */
typedef struct weft_log_message {
    size_t size; /* bytes of the struct that the library has filled */
    weft_log_level level;
    const char *id;    /* class of the message; "": none */
    const char *text;  /* one line without its place */
    const char *file;  /* NULL: none */
    int64_t line;      /* line number from 1, or 0 */
    const char *key;   /* NULL: none */
    const char *value; /* NULL: none */
} weft_log_message;
/* Receives messages in place of standard error. Several threads may call it at a time. It must not
 * call functions of weft other than weft_error_*. */
typedef void weft_log_callback(void *user, const weft_log_message *message);
/* Sets the receiver of messages for the process. NULL: standard error, the default. No other
 * thread may use weft during the call. */
void weft_log_set_callback(weft_log_callback *callback, void *user);
/* Hides messages that are less important than `level`, and replaces the environment variable
 * WEFT_LOG. The default is WEFT_LOG_INFO. Thread-safe. */
void weft_log_set_level(weft_log_level level);

/* Progress of a long call such as reading weights. */
typedef struct weft_progress_report {
    size_t size;         /* bytes of the struct that the library has filled */
    const char *title;   /* valid during the callback */
    const char *detail;  /* further figures, or ""; valid during the callback */
    int64_t done, total; /* items; total 0: unknown */
    double seconds_left; /* negative: unknown */
    int finished;        /* 1: the last report of this title */
} weft_progress_report;
/* Receives progress, at most about ten times a second per title. */
typedef void weft_progress_callback(void *user, const weft_progress_report *report);
/* Sets the receiver of progress for the process. NULL: lines on standard error, the default. No
 * other thread may use weft during the call. */
void weft_progress_set_callback(weft_progress_callback *callback, void *user);

/* ---- memory ---------------------------------------------------------------------------------- */

/* Functions that replace malloc, realloc and free for the memory that weft allocates. Memory that
 * other libraries (FFmpeg, oneDNN, MPI) allocate, and mapped files, are not included. All three
 * may be called by several threads at a time. */
typedef struct weft_allocator {
    size_t size;
    void *user;
    /* `alignment` is a power of two, at least 16. NULL: out of memory. */
    void *(*allocate)(void *user, size_t bytes, size_t alignment);
    /* Same contract as realloc, aligned to 16. `ptr` is not NULL. NULL: out of memory, and `ptr`
     * is unchanged. */
    void *(*reallocate)(void *user, void *ptr, size_t bytes);
    void (*release)(void *user, void *ptr); /* `ptr` is not NULL */
} weft_allocator;
/* Sets the allocator of the process (copied). NULL: the C library's, the default. Call it before
 * other functions: WEFT_E_ARG while weft has memory of the earlier allocator, or if a function is
 * missing. */
weft_status_code weft_allocator_set(const weft_allocator *allocator);
/* Frees memory that a function returned as "heap". Accepts NULL. Thread-safe. */
void weft_free(void *ptr);

/* Memory of the process, in bytes. */
typedef struct weft_memory_info {
    size_t size;
    int64_t
        available;    /* can still be allocated, by machine and control group; INT64_MAX: unknown */
    int64_t resident; /* in memory now; 0: unknown */
    int64_t peak;     /* largest `resident` so far; 0: unknown */
} weft_memory_info;
/* Thread-safe. */
weft_status_code weft_memory_describe(weft_memory_info *info);

/* ---- threads --------------------------------------------------------------------------------- */

/* Number of threads of kernels that the calling thread starts, 1 or more. Programs take the number
 * of the thread that creates them (weft_compile_options). The default is OMP_NUM_THREADS, or one
 * per processor. Other values: WEFT_E_ARG. */
weft_status_code weft_threads_set(int threads);

#ifdef __cplusplus
}
#endif

#endif
