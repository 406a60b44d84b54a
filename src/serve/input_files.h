/* The files of a request: images and videos from which a video is generated. A form has each as a
 * file, and the job's folder keeps them. The server reads their first bytes and lengths, and the
 * rate of a coarse video; the worker decodes them. */
#ifndef WEFT_SERVE_INPUT_FILES_H
#define WEFT_SERVE_INPUT_FILES_H

#include "base/json.h"
#include "model/encoders/identity_encoder.h"

#include <xxhash.h>

enum { WEFT_INPUT_REFERENCES = 4 }; /* maximum reference images of a request */

typedef enum weft_request_input {
    WEFT_INPUT_IMAGE,      /* first frame */
    WEFT_INPUT_LAST_IMAGE, /* last frame */
    WEFT_INPUT_VIDEO,      /* video to change */
    WEFT_INPUT_CONTROL,    /* control video */
    WEFT_INPUT_FACE,       /* face that a character gets */
    WEFT_INPUT_MASK,       /* selects the part of a video or control to generate */
    WEFT_INPUT_REFINE,     /* coarse video that is refined */
    WEFT_INPUT_REFERENCE,  /* person or thing of a control; further images follow */
    /* person or thing for an identity encoder; further images follow */
    WEFT_INPUT_IDENTITY = WEFT_INPUT_REFERENCE + WEFT_INPUT_REFERENCES,
    WEFT_INPUTS = WEFT_INPUT_IDENTITY + WEFT_IDENTITY_MOST_IMAGES
} weft_request_input;

typedef struct weft_input_kind {
    const char *field;  /* of a form */
    const char *key;    /* of a stored request */
    const char *option; /* of weft generate and weft estimate */
    const char *stem;   /* of the file in the job's folder */
    bool videos;        /* videos are legal in addition to images */
} weft_input_kind;
extern const weft_input_kind weft_input_kinds[WEFT_INPUTS];

enum { WEFT_INPUT_NAME = 24 }; /* bytes of "input-reference_2.webp" */

/* A file while it is received. It has no name until its job is accepted, so an interrupted upload
 * leaves nothing. Zero-initialised: no upload. */
typedef struct weft_upload {
    int file; /* descriptor + 1; 0: none */
    XXH3_state_t *hash;
} weft_upload;

/* The input of a form's field; WEFT_INPUTS: none. */
weft_request_input weft_input_find(const char *field);
/* The input of the next file of a field that may be repeated; WEFT_INPUTS: none. */
weft_request_input weft_input_after(weft_request_input input);
/* Appends bytes to the upload, whose file is in `folder`. False: they cannot be stored. */
bool weft_upload_write(weft_upload *upload, const char *folder, const char *bytes, size_t count);
/* Sets `name` to the file's name in a job's folder, by its first bytes: "input.png". WEFT_E_ARG: it
 * is not a whole file of a legal type. */
weft_status weft_upload_name(const weft_upload *upload, weft_request_input input,
                             char name[WEFT_INPUT_NAME]);
weft_status weft_upload_store(const weft_upload *upload, const char *folder, const char *name);
void weft_upload_close(weft_upload *upload);

/* Name of a stored request's file; NULL: none. */
const char *weft_input_of(const json_t *request, weft_request_input input);
/* The inputs of a request as bits, 1 << input. */
int weft_inputs_of(const json_t *request);
/* Appends options and names of the request's files to `arguments` (borrowed). Returns the number of
 * added words, up to 2 * WEFT_INPUTS. */
int weft_inputs_arguments(const json_t *request, char **arguments);
/* Media type of a file by its name. */
const char *weft_input_type(const char *name);

#endif
