/* A request that the HTTP thread is reading or answering. */
#ifndef WEFT_SERVE_SERVE_REQUEST_H
#define WEFT_SERVE_SERVE_REQUEST_H

#include "serve/input_files.h"
#include "serve/serve_reply.h"
#include "serve/server_parts.h"

#include <microhttpd.h>

/* Limits in bytes; a prompt has up to 32 KiB, and JSON may escape each byte. */
enum { WEFT_JSON_LIMIT = 256 << 10, WEFT_FORM_LIMIT = 32 << 20, WEFT_PATH_PARTS = 6 };

struct weft_serve_request {
    weft_server *server;
    struct MHD_Connection *connection;
    const char *method;                    /* of the library: "GET" */
    const char *owner;                     /* name of the token; NULL: none */
    char *path;                            /* owned copy of the URL, split at '/' */
    const char *part[WEFT_PATH_PARTS + 1]; /* parts of the path; "" after the last */
    int parts;
    /* body */
    bool is_form;
    weft_buf body;                  /* of JSON */
    struct MHD_PostProcessor *form; /* NULL: no form */
    json_t *fields;                 /* of the form: strings */
    weft_upload uploads[WEFT_INPUTS];
    weft_request_input receiving; /* upload of the last part */
    int64_t received;
    bool too_large, refused; /* refused: an answer was queued before the body */
    int upload_error;        /* errno of a write that failed; 0: none */
    bool repeated;           /* the form has a field twice */
    bool without_body;       /* the request may have no body, which means no fields */
    /* state of routes that wait */
    int stage;
    bool held;       /* was suspended once */
    bool asks_price; /* weft_prices_ask */
    bool saw_images; /* the images of its video were made meanwhile */
    bool asleep;     /* suspended, in server->waiting */
    weft_serve_request *next;
};

/* Reads the body's bytes. False: ends the connection without an answer. */
bool weft_serve_request_receive(weft_serve_request *request, const char *bytes, size_t count);
/* The fields of a JSON body or of a form (json_decref). */
weft_status weft_serve_request_fields(weft_serve_request *request, json_t **fields);
/* Prepares a body of JSON or of a form. Returns false if the request has another type. */
bool weft_serve_request_begin_body(weft_serve_request *request);
void weft_serve_request_free(weft_serve_request *request); /* accepts NULL */
/* A value of the query; "" if not given. */
const char *weft_serve_request_query(const weft_serve_request *request, const char *key);
#endif
