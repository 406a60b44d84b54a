/* A child process that runs weft: its standard error and output are read without waiting. */
#ifndef WEFT_SERVE_CHILD_PROCESS_H
#define WEFT_SERVE_CHILD_PROCESS_H

#include "base/memory.h"

#include <sys/types.h>

/* Zero-initialised: not running. */
typedef struct weft_child {
    pid_t pid;         /* 0: not running */
    int input;         /* descriptor that writes its standard input, with with_input */
    int output, error; /* descriptors; -1: the stream has ended */
    weft_buf output_text, error_text;
    int64_t dropped; /* bytes of the error stream before the first byte of error_text */
} weft_child;

/* A text has at least the last WEFT_CHILD_TEXT bytes of its stream: the error of a long run is at
 * the end, after hours of progress. */
enum { WEFT_CHILD_TEXT = 1 << 20 };

struct weft_child_starter;

typedef struct weft_child_start_options {
    char *const *argv;  /* argv[0]: path of the program; NULL-terminated */
    const char *folder; /* working folder */
    int lock;           /* a locked descriptor that only the child keeps open; -1: none */
    int niceness;       /* added to the server's */
    bool with_output;   /* standard output is read; else it is discarded */
    bool with_input;    /* weft_child_write writes standard input; else it is empty */
    int input;          /* a descriptor that is its standard input; 0: none */
    /* [default_count] "NAME=VALUE": variables that the server's environment does not have */
    const char *const *defaults;
    int default_count;
    const char *replaced; /* "NAME=VALUE" in place of the server's variable; NULL: none */
    int last_signal;      /* the child gets it when this thread ends; 0: SIGKILL */
    /* forks the child if it is ready, argv[0] is weft, and no variable differs; NULL: none */
    struct weft_child_starter *starter;
} weft_child_start_options;
/* Starts a program in a process group of its own. The child is killed when this thread ends. */
weft_status weft_child_start(const weft_child_start_options *options, weft_child *child);
/* Writes to standard input. WEFT_E_IO: the child has ended, or reads nothing. */
weft_status weft_child_write(const weft_child *child, const void *bytes, int64_t count);
/* Removes the first bytes of error_text. */
void weft_child_drop(weft_child *child, int64_t count);
/* Reads the available bytes. Returns false once both streams have ended. */
bool weft_child_read(weft_child *child);
/* Waits for the end of a child whose streams have ended. Returns its status as of waitpid. */
int weft_child_wait(weft_child *child);
/* Frees the texts and closes the descriptors; the child must not run. */
void weft_child_close(weft_child *child);

#endif
