/* Text conditioning: turns captions and prompts into conditioning inputs of a denoiser, with one or
 * several text encoders. Used by training, by the embedding cache and by generation.
 *
 *     text --clean, template, tokenizer--> ids (L), mask of the text's tokens (L)
 *          --encoder--> (L,D) --crop, zeros--> "text" (L',D), "text_mask" (L')
 *          --encoder--> (D)                --> "pooled"
 *
 * An encoder with a vision input (LLaVA, weft_vision_input) also encodes the video's first frame.
 * The image tokens come before the text tokens.
 *
 * The denoiser's row (weft_text_encoder_row) describes each encoder as data. In a graph the
 * encoders' inputs are named
 *
 *     batch.tokens  batch.tokens_2  i32 (B,L)
 *     batch.seen    batch.seen_2    i32 (B,L)   1: a token that the encoder attends to
 *     batch.real    batch.real_2    i32 (B,L')  1: a token of the text, 0: padding
 *     batch.picture                 f32 (B,1,side,side,3)  preprocessed image, or f32 (B,N,D)
 *                                                embeddings of images to edit
 *     batch.uncut                   i32 (B,L'')  1: a token of the text before the cut, or a row
 *                                                of a text without its instruction
 *
 * The denoiser's conditioning inputs have the names of its ports: batch.text, batch.text_mask,
 * batch.pooled, batch.text_layers (B,N,L,D). Packed, as in caches, the conditioning is one f32 row
 * per caption: the entries in this order, a mask as 0 and 1. */
#ifndef WEFT_PROMPT_TEXT_CONDITIONING_H
#define WEFT_PROMPT_TEXT_CONDITIONING_H

#include "exec/program.h"
#include "model/model.h"
#include "prompt/text_encoder_rows.h"
#include "text/tokenizer.h"

enum { WEFT_MAX_TEXT_ENCODERS = 4, WEFT_MAX_CONDITIONING = 8 };
/* bytes of a template with images to edit */
enum { WEFT_EDIT_TEMPLATE = 1200 };

typedef struct weft_text_encoder {
    const weft_text_encoder_row *row; /* of the denoiser's family */
    weft_model model;
    weft_model connectors;           /* of row->connectors; no family: none */
    char tokenizer[600];             /* file or folder; "": the family's own tokens */
    int64_t length;                  /* tokens that the encoder reads, with the template's */
    const weft_vision_input *vision; /* image among the tokens; NULL: none */
    int64_t image_side;              /* pixels per side of the image */
    /* tokens in the conditioning: of the image and of the text */
    int64_t image_tokens, text_tokens;
    int64_t step;        /* every step-th image token is used */
    int64_t instruction; /* tokens of the instruction before a prompt; 0: none */
    /* Images to edit among the tokens (prompt/text_images.h). NULL: none */
    const weft_edit_pipeline *edit;
    weft_image_tokens images;
    char before[WEFT_EDIT_TEMPLATE]; /* template before the text, with all images */
    bool published;                  /* prompts get row->prompt_after; set by the caller */
    /* Dropped captions have the embeddings of row->no_text; set by the caller */
    bool stores_no_text;
} weft_text_encoder;

/* One entry of the conditioning: (rows, width) floats at offset `at` of a packed caption. Pooled
 * vectors of several encoders are concatenated in their port. */
typedef struct weft_conditioning_entry {
    weft_port port;
    int encoder;
    int64_t rows, width, at; /* width of a mask is 1; rows of a single vector are 1 */
    /* number of layers, all in `rows`, if the encoder returns all its layers; else 0 */
    int64_t layers;
    int64_t inside; /* offset in the port, after the entries of earlier encoders */
} weft_conditioning_entry;

typedef struct weft_text_conditioning {
    int encoders, entries;
    weft_text_encoder encoder[WEFT_MAX_TEXT_ENCODERS];
    weft_conditioning_entry entry[WEFT_MAX_CONDITIONING];
    int64_t floats; /* floats of a packed caption */
} weft_text_conditioning;

/* Settings of one encoder, in addition to the denoiser's row. */
typedef struct weft_text_encoder_spec {
    weft_model model;
    weft_model connectors; /* of the denoiser's row->connectors; no family: none */
    const char *folder;    /* folder of its weights; NULL: none */
    const char *tokenizer; /* file or folder; NULL or "": in `folder` or next to it */
    int64_t length;        /* tokens of a text; 0: from the row or the encoder */
} weft_text_encoder_spec;

/* Assigns encoders to the denoiser's rows, in order. The error names an encoder that is missing,
 * has another width, or has no tokenizer, and begins with `where`. Opens the tokenizers of rows
 * with an instruction only. */
weft_status weft_text_conditioning_open(const weft_model *denoiser,
                                        const weft_text_encoder_spec *spec, int count,
                                        const char *where, weft_text_conditioning *text);
/* Sets the entries of the conditioning after the lengths of its encoders. */
weft_status weft_text_conditioning_connect(const weft_model *denoiser, const char *where,
                                           weft_text_conditioning *c);
const weft_conditioning_entry *weft_text_conditioning_find(const weft_text_conditioning *c,
                                                           weft_port port); /* NULL: none */
/* Number of "text" tokens in the conditioning. */
int64_t weft_text_conditioning_length(const weft_text_conditioning *text);
int64_t weft_text_conditioning_length2(const weft_text_conditioning *text); /* of a second text */

/* Rows of the template before a text (0 for byte tokens); conditioning tokens of a text and its
 * image; positions that the encoder reads, several for an image. */
int64_t weft_text_encoder_crop(const weft_text_encoder *encoder);
int64_t weft_text_encoder_rows(const weft_text_encoder *encoder);
int64_t weft_text_encoder_positions(const weft_text_encoder *encoder);

/* Name of an input of encoder r in graphs: "batch.tokens_2". */
const char *weft_text_conditioning_input(const char *what, int r, char name[32]);

/* ---- graphs --------------------------------------------------------------------------------- */

/* Declares inputs "<prefix><port>" for all text conditioning of the denoiser, and sets its ports.
 * `prefix`: "batch.", or WEFT_EMPTY_CAPTION for the conditioning of the empty caption. */
#define WEFT_EMPTY_CAPTION "batch.empty."
void weft_text_conditioning_inputs(weft_graph *g, const weft_text_conditioning *c,
                                   const weft_model *denoiser, const weft_model_size *size,
                                   const char *prefix, weft_ports *ports);
/* Computes the conditioning with the encoders in the graph, in scopes named as their folders.
 * `stays`, bit r: encoder r is frozen. */
void weft_text_conditioning_encode(weft_graph *g, const weft_text_conditioning *c, int64_t batch,
                                   uint32_t stays, weft_ports *ports);
/* weft_text_conditioning_append puts the tokens (B,K,D) of another module before the text tokens. A
 * mask marks them as valid: some families (HunyuanVideo) count the valid tokens from the first one.
 * weft_text_conditioning_check_append checks first that the denoiser accepts additional tokens of
 * this width; `who` names their module in messages. */
weft_status weft_text_conditioning_check_append(const weft_model *denoiser, int64_t width,
                                                const char *who);
void weft_text_conditioning_append(weft_graph *g, weft_value tokens, weft_ports *ports);
/* Builds a graph of encoder r alone, with outputs "<port>". */
void weft_text_conditioning_build(weft_graph *g, const weft_text_conditioning *c, int r,
                                  int64_t batch);

/* ---- values --------------------------------------------------------------------------------- */

/* Returns the input of that name; NULL: not on this rank. */
typedef weft_tensor *weft_input_lookup(void *user, const char *name);

/* Sets the image (side, side, 3) of row `row` of encoder r, or the embeddings (N,D) of images to
 * edit. Does nothing if the encoder has no such input. */
void weft_text_conditioning_set_image(const weft_text_conditioning *c, int r,
                                      weft_input_lookup *find, void *user, int64_t row,
                                      const float *image);
/* Pixels per side of that image; 0: no encoder has a vision input. */
int64_t weft_text_conditioning_image_side(const weft_text_conditioning *c);
/* Copies a packed row of text conditioning into the denoiser's inputs. */
void weft_text_conditioning_set(const weft_text_conditioning *c, weft_input_lookup *find,
                                void *user, int64_t row, const float *packed);
/* Copies one entry of a packed row into the input of its port. */
void weft_text_conditioning_set_entry(const weft_text_conditioning *c,
                                      const weft_conditioning_entry *entry, weft_input_lookup *find,
                                      void *user, int64_t row, const float *packed);
/* Copies the outputs of encoder r's program (graph of weft_text_conditioning_build) into `count`
 * packed rows. */
void weft_text_conditioning_get(const weft_text_conditioning *c, int r, weft_program *program,
                                int64_t count, float *packed);
/* Adapts the packed row of the negative text to its prompt: entries of paired encoders get the
 * prompt's mask. */
void weft_text_conditioning_pair(const weft_text_conditioning *c, const float *prompt,
                                 float *negative);
/* weft_program_input as a weft_input_lookup. */
weft_tensor *weft_text_conditioning_program_input(void *program, const char *name);

#endif
