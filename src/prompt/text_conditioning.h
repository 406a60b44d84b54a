/* Captions and prompts: how a text becomes what a denoiser is told of it, by one text encoder or by
 * several. All that training, the cache of embeddings and generation do with texts is here.
 *
 *     text --clean, template, tokenizer--> ids (L), which of them are text (L)
 *          --encoder--> (L,D) --crop, zeros--> "text" (L',D), "text_mask" (L')
 *          --encoder--> (D)                --> "pooled"
 *
 * An encoder that is shown the video's first frame (LLaVA) tells a part of what it sees of that,
 * too, before what it says of the text (weft_shown).
 *
 * What is done with each encoder is data in the denoiser's row (weft_reading). In a graph the
 * encoders' inputs are named
 *
 *     batch.tokens  batch.tokens_2  i32 (B,L)
 *     batch.seen    batch.seen_2    i32 (B,L)   1: a token that the encoder attends to
 *     batch.real    batch.real_2    i32 (B,L')  1: a token of the text, 0: padding
 *     batch.picture                 f32 (B,1,side,side,3)  as its processor makes it
 *     batch.uncut                   i32 (B,L'')  1: of the text's tokens, those before what is cut
 *
 * and what the denoiser is told of captions, where it is given, as its ports: batch.text,
 * batch.text_mask, batch.pooled, batch.text_layers (B,N,L,D). Packed, as caches have it, it is a
 * row of f32 a caption: the pieces in this order, a mask as 0 and 1. */
#ifndef WEFT_PROMPT_CAPTIONS_H
#define WEFT_PROMPT_CAPTIONS_H

#include "model/model.h"
#include "runtime/runtime.h"
#include "text/tokenizer.h"

enum { WEFT_MAX_READERS = 4, WEFT_MAX_TOLD = 8 };

typedef struct weft_reader {
    const weft_reading *reading; /* of the denoiser's family */
    weft_model model;
    char tokenizer[600];     /* file or folder; "": the family's own tokens */
    int64_t length;          /* tokens that the encoder is given, with those of the template */
    const weft_shown *shown; /* how it is shown a picture, which is one of those tokens; or NULL */
    int64_t picture;         /* its side in pixels */
    int64_t told_picture, told_text; /* tokens that are told, of the picture and of the text */
    int64_t step;                    /* of the picture's every n-th */
} weft_reader;

/* A piece of what a denoiser is told: (rows, width) of a caption, behind `at` others. Pooled
 * vectors of several encoders are one behind the other in their port. */
typedef struct weft_told {
    weft_port port;
    int reader;
    int64_t rows, width, at; /* of a mask the width is 1, of one vector the rows are */
    int64_t layers; /* of an encoder all of whose layers are told: rows are theirs; else 0 */
    int64_t inside; /* of the port's, what others tell before it */
} weft_told;

typedef struct weft_captions {
    int readers, tolds;
    weft_reader reader[WEFT_MAX_READERS];
    weft_told told[WEFT_MAX_TOLD];
    int64_t floats; /* of a caption, packed */
} weft_captions;

/* What is said of an encoder beside the denoiser's row. */
typedef struct weft_reader_spec {
    weft_model model;
    const char *folder;    /* of its weights; NULL: there is none */
    const char *tokenizer; /* file or folder; NULL or "": in `folder` or beside it */
    int64_t length;        /* tokens of a text; 0: as the row or the encoder has it */
} weft_reader_spec;

/* Encoders to the readings of a denoiser, in their order. Says which is missing, of another width,
 * or without a tokenizer; `where` begins the message. Opens no tokenizer. */
weft_status weft_captions_read(const weft_model *denoiser, const weft_reader_spec *spec, int count,
                               const char *where, weft_captions *captions);
/* How many readings the denoiser has, and each. */
int weft_captions_needed(const weft_model *denoiser);
const weft_reading *weft_captions_reading(const weft_model *denoiser, int r);
const weft_told *weft_captions_told(const weft_captions *c, weft_port port); /* NULL: none */
/* Tokens of "text" that the denoiser is told. */
int64_t weft_captions_length(const weft_captions *captions);

/* The name of an input of reader r in graphs: "batch.tokens_2". */
const char *weft_captions_input(const char *what, int r, char name[32]);

/* ---- graphs --------------------------------------------------------------------------------- */

/* Inputs "batch.<port>" for all that the denoiser is told, into its ports. */
void weft_captions_given(weft_graph *g, const weft_captions *c, const weft_model *denoiser,
                         const weft_model_size *size, weft_ports *ports);
/* The same from the encoders, which are in the graph under the names of their folders. `stays`: bit
 * r: encoder r is not trained. */
void weft_captions_encode(weft_graph *g, const weft_captions *c, int64_t batch, uint32_t stays,
                          weft_ports *ports);
/* The tokens (B,K,D) of another module go before those of the text, and are seen where a mask says
 * what is: some families (HunyuanVideo) go by how many are, from the first on.
 * weft_captions_takes_more says first whether the denoiser can be told any beside its text, and of
 * this width; `who`: of whose they are, in messages. */
weft_status weft_captions_takes_more(const weft_model *denoiser, int64_t width, const char *who);
void weft_captions_add(weft_graph *g, weft_value tokens, weft_ports *ports);
/* A graph of reader r alone: outputs "<port>" of what it tells. */
void weft_captions_build(weft_graph *g, const weft_captions *c, int r, int64_t batch);

/* ---- numbers -------------------------------------------------------------------------------- */

/* Tokens of the signs of a template (weft_shown). */
typedef struct weft_signs {
    int32_t image, closes;
} weft_signs;

/* The tokenizers, opened; and what they cut. */
typedef struct weft_spelling {
    weft_signs sign[WEFT_MAX_READERS];    /* of readers that are shown a picture */
    weft_tokenizer *of[WEFT_MAX_READERS]; /* NULL: the family's own */
    int64_t texts, cut[WEFT_MAX_READERS]; /* spelled, and how many were too long */
} weft_spelling;
weft_status weft_spelling_open(const weft_captions *c, weft_spelling *spelling);
void weft_spelling_close(weft_spelling *spelling);

/* The input of that name; NULL: it is not on this rank. */
typedef weft_tensor *weft_find_input(void *user, const char *name);

/* Text `row` of a batch into the inputs of reader r. */
weft_status weft_captions_spell(const weft_captions *c, weft_spelling *spelling, int r,
                                weft_find_input *find, void *user, int64_t row, const char *text);
/* The picture (side, side, 3) that reader r is shown beside text `row`; nothing where it is shown
 * none. */
void weft_captions_show(const weft_captions *c, int r, weft_find_input *find, void *user,
                        int64_t row, const float *picture);
/* The side of that picture in pixels; 0: no reader is shown one. */
int64_t weft_captions_picture(const weft_captions *c);
/* What the denoiser is told, packed, into its inputs. */
void weft_captions_give(const weft_captions *c, weft_find_input *find, void *user, int64_t row,
                        const float *packed);
/* What reader r's program says, whose graph weft_captions_build built, into `count` packed rows. */
void weft_captions_take(const weft_captions *c, int r, weft_program *program, int64_t count,
                        float *packed);
/* Makes of the negative text's packed row what is told of it beside that prompt: where a reading is
 * paired, the prompt's mask. */
void weft_captions_pair(const weft_captions *c, const float *prompt, float *negative);
/* weft_program_input for weft_find_input. */
weft_tensor *weft_captions_program_input(void *program, const char *name);

/* Adds what of `text` does not fit, as lines; nothing when all of it does. */
weft_status weft_captions_tell_cut(const weft_captions *c, const weft_spelling *spelling,
                                   const char *text, weft_buf *out);
/* Warns of those that were spelled and too long, by how many they were. */
void weft_captions_warn_cut(const weft_captions *c, const weft_spelling *spelling);
/* The encoder's tokenizer as it was given, its length and its template: what makes the numbers
 * beside the weights. */
weft_status weft_captions_hash(const weft_captions *c, int r, uint64_t *hash);

#endif
