/* The answer to a request, before it is sent. */
#ifndef WEFT_SERVE_SERVE_REPLY_H
#define WEFT_SERVE_SERVE_REPLY_H

#include "base/json.h"
#include "base/memory.h"

/* Zero-initialised. One of: json; text with type; a file; waits. */
typedef struct weft_serve_reply {
    unsigned status;
    json_t *json;                /* owned */
    weft_buf text;               /* owned */
    const char *type;            /* media type of text and file */
    int file;                    /* descriptor + 1, owned; 0: none */
    int64_t first, count, total; /* bytes of the file that are sent; total: all bytes */
    const char *policy;          /* of the content's security; NULL: none */
    const char *allow;           /* 405: methods of the path; NULL: none */
    bool waits;                  /* no answer yet: ask again after the next change */
    bool streams;                /* an event stream of the job `text` */
} weft_serve_reply;

weft_serve_reply weft_serve_json(unsigned status, json_t *json);
/* An error in the form of the /v1/videos shape. `field` and `code` may be NULL. */
weft_serve_reply weft_serve_error(unsigned status, const char *code, const char *field,
                                  const char *text);
/* This thread's error, whose class decides the status. The cause of the class replaces the text of
 * an error that names a file or does not concern the request. Texts about the request have its
 * values and names of models, which may have a '/'. */
weft_serve_reply weft_serve_own_error(void);

#endif
