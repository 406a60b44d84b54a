/* What a model family is: one row, in the family's own file, and all that the rest of weft knows of
 * it. Whoever trains, generates, inspects or compares works with roles, ports and grids and never
 * asks which family it has before it. */
#ifndef WEFT_MODEL_FAMILY_H
#define WEFT_MODEL_FAMILY_H

#include "base/json.h"
#include "graph/graph.h"
#include "pass/pass.h"
#include "pass/reuse.h"

typedef enum weft_role {
    WEFT_ROLE_DENOISER,
    WEFT_ROLE_AUTOENCODER,
    WEFT_ROLE_TEXT_ENCODER,
    WEFT_ROLE_IMAGE_ENCODER,
    WEFT_ROLE_IDENTITY_ENCODER,
    WEFT_ROLE_COUNT
} weft_role;
const char *weft_role_name(weft_role role); /* "denoiser", ... */

/* ---- ports: the values that go in and out, by meaning --------------------------------------- */

/*   B batch, T,Y,X latent frames, rows, columns, C channels, L tokens, D width                   */
/* clang-format off */
typedef enum weft_port {
    WEFT_PORT_LATENTS,        /* (B,T,Y,X,C)  what is denoised; what a decoder takes             */
    WEFT_PORT_TIMESTEP,       /* (B), (B,N)   what the process tells the model: of a sample, or
                               *              one of each frame or token                         */
    WEFT_PORT_TEXT,           /* (B,L,D)      embeddings of the prompt                           */
    WEFT_PORT_TEXT_MASK,      /* (B,L) i32    1: a token, 0: padding                             */
    WEFT_PORT_TEXT2,          /* (B,L,D)      those of a second encoder                          */
    WEFT_PORT_TEXT2_MASK,     /* (B,L) i32                                                       */
    WEFT_PORT_TEXT_LAYERS,    /* (N,B,L,D)    all layers of an encoder                           */
    WEFT_PORT_SIZES,          /* (B,6)        of an image: original, wanted, where it was cut    */
    WEFT_PORT_POOLED,         /* (B,D)        one vector for the whole prompt                    */
    WEFT_PORT_GUIDANCE,       /* (B)          scale of a distilled guidance                      */
    WEFT_PORT_IMAGE,          /* (B,L,D)      embeddings of an image                             */
    WEFT_PORT_CONDITION,      /* (B,T,Y,X,C)  latents that are given, and which they are         */
    WEFT_PORT_PADDING,        /* (B,T,Y,X,1)  1: pixels outside of the picture                   */
    WEFT_PORT_PLACES,         /* (B,3,S)      of tokens, in seconds, rows and columns of pixels  */
    WEFT_PORT_SPACING,        /* (3)          of latents, in seconds, rows and columns of pixels */
    WEFT_PORT_LATENT_MASK,    /* (B,T,Y,X) i32  1: inside of the picture                         */
    WEFT_PORT_FRAME_MASK,     /* (B,T) i32    0: a frame that is given                           */
    WEFT_PORT_HEIGHT,         /* (B)          in pixels                                          */
    WEFT_PORT_WIDTH,          /* (B)          in pixels                                          */
    WEFT_PORT_FPS,            /* (B)          frames per second                                  */
    WEFT_PORT_OFFSET,         /* (B)          how strongly an image conditions (CogVideoX 1.5)   */
    WEFT_PORT_LABEL,          /* (B) i32      a class                                            */
    WEFT_PORT_TOKENS,         /* (B,L) i32    of a prompt                                        */
    WEFT_PORT_LAST_HIDDEN,    /* (B,L,D)      an encoder's last layer, where others use another  */
    WEFT_PORT_VIDEO,          /* (B,T,Y,X,3)  pixels in [-1,1]                                   */
    WEFT_PORT_NOISE,          /* (B,T,Y,X,C)  of the posterior's sample                          */
    WEFT_PORT_PREDICTION,     /* (B,T,Y,X,C)  what a denoiser says                               */
    WEFT_PORT_MEAN,           /* (B,T,Y,X,C)  of the posterior                                   */
    WEFT_PORT_LOGVAR,         /* (B,T,Y,X,C)  of the posterior                                   */
    WEFT_PORT_RECONSTRUCTION, /* (B,T,Y,X,3)  what a decoder makes, not clamped                  */
    WEFT_PORT_BALANCE,        /* ()           what training adds for an even load of experts     */
    WEFT_PORT_FULLEST,        /* ()           the load of the fullest expert over the even one   */
    WEFT_PORT_DROPPED,        /* ()           share of the choices of experts that had no place  */
    WEFT_PORT_COUNT
} weft_port;
/* clang-format on */
const char *weft_port_name(weft_port port); /* "latents", ... */
bool weft_port_is_video(weft_port port);    /* (B,T,Y,X,C); references have (B,C,T,Y,X) */
weft_dtype weft_port_dtype(weft_port port);

/* How a reference lays a video out. */
typedef enum weft_video_form {
    WEFT_VIDEO_BCTYX,  /* (B,C,T,Y,X), or an image (B,C,Y,X) */
    WEFT_VIDEO_BTCYX,  /* (B,T,C,Y,X)                        */
    WEFT_VIDEO_PACKED, /* (B,T Y X,C): tokens; where the grid says that one holds several latents,
                        * (B,T Y X,C py px) */
} weft_video_form;

typedef struct weft_port_row {
    weft_port port;
    bool output;
    const char *reference; /* its name in the reference's forward(), as golden files have it */
    /* The model does without it, WEFT_NONE; an output: not every config makes it, and references
     * do not */
    bool optional;
    weft_video_form form;
    double unit; /* inputs: ours is the reference's times this; 0: the same */
    /* outputs: what golden files hold against it in their loss; where no port says so, the last
     * output is held against "target" */
    const char *target;
} weft_port_row;

/* Values of one call; those that are not used are WEFT_NONE. */
typedef struct weft_ports {
    weft_value at[WEFT_PORT_COUNT];
} weft_ports;
weft_ports weft_ports_none(void);

/* The ports of every video autoencoder, as references name them. */
enum { WEFT_AUTOENCODER_PORTS = 5 };
extern const weft_port_row weft_autoencoder_ports[WEFT_AUTOENCODER_PORTS];
/* What an encoder makes, (B,T,Y,X,2C): mean and logarithm of the variance of the posterior, the
 * latter within [-30, 20]. */
void weft_ports_set_posterior(weft_graph *g, weft_value moments, weft_ports *p);

/* The size of the video is that in latents (denoiser, decoder) or pixels (encoder); `text` and
 * `image` are the numbers of their tokens. */
typedef struct weft_model_size {
    int64_t batch, frames, height, width, text;
    int64_t image;
    int64_t times;         /* timesteps of a sample; 0 or 1: one, of rank 1 */
    int64_t layers, text2; /* of an encoder all of whose layers are read; 0: those needed, `text` */
    uint32_t given;        /* bit p: the optional port p is given */
} weft_model_size;
/* Of the inputs that all have: of an autoencoder, by the channels of its video and its latents; of
 * a denoiser (latents, timestep, text and its mask), by those of latents and the text's width. */
weft_shape weft_autoencoder_shape(const weft_model_size *s, weft_port port, int64_t channels,
                                  int64_t latents);
weft_shape weft_denoiser_shape(const weft_model_size *s, weft_port port, int64_t latents,
                               int64_t text);

/* Autoencoders have two halves, and each can be one piece of a stream. ALONE is the whole video at
 * once (training). FIRST is the beginning of a stream and NEXT its continuation; what NEXT has to
 * know of the frames before it stands in states that FIRST and NEXT leave behind, or comes from the
 * rank before where the graph is one of several ranks' (model/stream_before.h; encoders). */
typedef enum weft_call_kind {
    WEFT_CALL_FORWARD,
    WEFT_CALL_ENCODE,
    WEFT_CALL_DECODE
} weft_call_kind;
typedef enum weft_stream { WEFT_STREAM_ALONE, WEFT_STREAM_FIRST, WEFT_STREAM_NEXT } weft_stream;
typedef struct weft_call {
    weft_call_kind kind;
    weft_stream stream;
} weft_call;

/* ---- grid: how latents lie over pixels, tokens over latents --------------------------------- */

/* Channels of latents that a mean and a deviation are kept of; Cosmos keeps 16 of each of 16
 * frames. */
enum { WEFT_MAX_CHANNELS = 128, WEFT_MAX_STATISTICS = 256 };

/* Of an autoencoder: pixels to latents. Of a denoiser: latents to tokens (its patch). */
typedef struct weft_grid {
    int64_t factor[3]; /* frames, rows, columns that become one */
    bool causal;       /* frame 0 stands alone: 1 + factor n frames become 1 + n */
    /* autoencoder: latent frames of a stream's pieces; the first takes what does not divide too. 0:
     * only the whole video at once */
    int64_t piece;
    /* autoencoder: latent frames after the first come in groups of this size; 0: of 1 */
    int64_t group;
    int64_t cell;     /* autoencoder: a side of pixels that are channels inside; 0: 1 */
    int64_t channels; /* of the latents */
    int64_t out_channels;
    /* denoiser: the only frames, height and width of latents, and number of text tokens, that it
     * has places for; 0: any */
    int64_t only[3], text;
    /* autoencoder: of its latents, by channel, and frame by frame of the first `own_frames` if that
     * is not 0: then it has none of later ones */
    int64_t own_frames;
    /* autoencoder: a frame that is given is multiplied by the deviation, not divided, as its
     * denoiser was trained (CogVideoX 1.5) */
    bool inverted;
    double mean[WEFT_MAX_STATISTICS], deviation[WEFT_MAX_STATISTICS];
} weft_grid;
/* Where in them the numbers of a latent frame begin. */
int64_t weft_grid_statistics_at(const weft_grid *grid, int64_t latent_frame);
/* An error where statistics of so many latent frames are not known; `who`: of whose VAE. */
weft_status weft_grid_check_statistics(const weft_grid *grid, int64_t latent_frames,
                                       const char *who);
/* Frames that fit the grid: rounded to the nearest, at least one. */
int64_t weft_grid_frames(const weft_grid *grid, int64_t latent_frames);
int64_t weft_grid_latent_frames(const weft_grid *grid, int64_t frames);
bool weft_grid_takes_frames(const weft_grid *grid, int64_t frames);
/* The number of frames nearest to `frames` that the grid takes. */
int64_t weft_grid_nearest_frames(const weft_grid *grid, int64_t frames);
/* "1 + 4 n", "4 n", "n" */
const char *weft_grid_rule(const weft_grid *grid, char text[32]);

/* ---- config: one table per family ----------------------------------------------------------- */

typedef enum weft_field_type {
    WEFT_FIELD_I64,
    WEFT_FIELD_F64,
    WEFT_FIELD_BOOL,
    WEFT_FIELD_I64S, /* lists: `capacity` items in the struct */
    WEFT_FIELD_F64S,
    WEFT_FIELD_BOOLS,
    WEFT_FIELD_WORDS,   /* lists of such; int64_t each */
    WEFT_FIELD_WORD,    /* one of `words`, JSON each; int64_t: which; no fallback: 0 */
    WEFT_FIELD_EACH,    /* no member: a list of `length` times `fallback`, alone supported */
    WEFT_FIELD_FIXED,   /* no member: only `fallback` is supported, and is written */
    WEFT_FIELD_IGNORED, /* no member: any value is accepted, `fallback` is written */
    WEFT_FIELD_DERIVED, /* no member: follows from the others (`length`), else refused */
    WEFT_FIELD_PART,    /* the config of a model inside, by the table of the family `part` */
} weft_field_type;

/* What a field becomes when a config leaves it out and the models beside it decide. */
typedef enum weft_follows {
    WEFT_FOLLOWS_NOTHING,
    WEFT_FOLLOWS_LATENTS, /* channels of the autoencoder's latents */
    WEFT_FOLLOWS_TEXT,    /* width of the text encoder's embeddings */
} weft_follows;

typedef struct weft_field {
    const char *key;
    weft_field_type type;
    size_t offset; /* in the family's struct */
    /* As JSON; "=key": the value of that field, which stands above; NULL: `length`. A number that
     * may be null is 0 then. */
    const char *fallback;
    double min, max; /* numbers and items of lists; both 0: no limit */
    int capacity;    /* lists */
    size_t count;    /* lists of any length: offset of the int64_t that says how many */
    /* Lists: so many items, NULL: 0 to capacity. DERIVED, and a fallback of NULL: the value. */
    int64_t (*length)(const void *config);
    weft_follows follows;
    const char *help;
    const char *const *words; /* ends with NULL */
    bool spread;              /* lists of dictated length: a number alone is every item */
    /* "object.key" or "key", up to two with '|' between: where the field stands in other versions
     * of the config */
    const char *also;
    const struct weft_family *part;
} weft_field;
int64_t weft_three(const void *config); /* the `length` of what has three sides */

/* A field of the reference's config that the model does not read. "object.key" is a key of an
 * object that a field's `also` names. */
typedef struct weft_unused_field {
    const char *key;
    const char *only; /* the one value that is accepted, as JSON; NULL: any value */
    bool each;        /* a list whose items are all `only` is accepted, too */
    /* The value that the other fields imply; NULL: `only`. */
    const char *(*implied)(const void *config);
} weft_unused_field;
/* The fields of every config of the transformers library; ends with a key of NULL. */
extern const weft_unused_field weft_transformers_unused[];

/* What an autoencoder's config says of its latents: a denoiser's are (z - mean - shift) scale /
 * deviation, mean and deviation by channel. `scale` 0: the config has no such field. */
typedef struct weft_statistics {
    double scale, shift;
    double mean[WEFT_MAX_STATISTICS], deviation[WEFT_MAX_STATISTICS];
    /* Of lists that may have any number of frames, (channel, frame): how many numbers, 0: none are
     * known. Not used by families with one number a channel. */
    int64_t count[2];
} weft_statistics;

/* clang-format off */
/* The rows of mean and deviation, whose struct lies at `at`; channels(config) is their length. */
#define WEFT_STATISTICS_FIELDS(at, channels)                                                       \
    {"latents_mean", WEFT_FIELD_F64S, (at) + offsetof(weft_statistics, mean), "0",                 \
     .capacity = WEFT_MAX_CHANNELS, .length = channels,                                            \
     .help = "of each latent channel over the data"},                                              \
    {"latents_std", WEFT_FIELD_F64S, (at) + offsetof(weft_statistics, deviation), "1", 1e-30, 1e30,\
     .capacity = WEFT_MAX_CHANNELS, .length = channels, .help = "its deviation"}
/* clang-format on */

/* Where the fields of a config were written. */
typedef struct weft_places {
    const char *where; /* file, or file and line */
    int64_t count;
    const char *const *key, *const *key_where; /* [count] of single fields; NULL: all at `where` */
    bool strict; /* a field that the table does not have is an error (and not a file of others) */
} weft_places;
const char *weft_places_of(const weft_places *places, const char *key);
/* What rotates of a head, by frames, rows and columns: even numbers that make up the head. */
weft_status weft_check_axes(const weft_places *places, const char *key, const int64_t axes[3],
                            int64_t head_dim);
/* "block_out_channels" of an autoencoder: so many levels at least, groups of the norms in each. */
weft_status weft_check_levels(const weft_places *places, const int64_t *width, int64_t levels,
                              int64_t least, int64_t groups);
/* "cross_attention_dim", where texts are projected to the model's width. */
weft_status weft_check_cross(const weft_places *places, int64_t cross, int64_t width);

typedef struct weft_family weft_family;
/* Reads, checks and writes by the family's table. */
weft_status weft_fields_read(const weft_family *family, const json_t *json,
                             const weft_places *places, void *config);
json_t *weft_fields_write(const weft_family *family, const void *config); /* NULL: out of memory */

/* ---- the row -------------------------------------------------------------------------------- */

/* Parameter memory that a family fills itself when a model begins from nothing. */
typedef struct weft_weight {
    const char *name; /* as in the public checkpoint */
    weft_shape shape;
    float *data;
} weft_weight;

typedef struct weft_named_config {
    const char *name, *json;
} weft_named_config;

/* One way of naming a checkpoint's tensors. The rules are tried in order, and each replaces every
 * `theirs` that stands between dots or ends of the name. "#" in `theirs` is any number, and in
 * `ours` the same one (the second the second). "{a,b,c}" in `ours`: theirs is these tensors one
 * after the other along dim 0, "%{a,b}" the first halves of all and then the second ones; "[a,b]":
 * the one of these that the model has; "~": its halves along dim 0 change places. "" for the
 * beginning of a name: the model does not have the tensor. */
typedef struct weft_rename_rule {
    const char *theirs, *ours;
    int ones; /* dims of 1 that their matrices have behind ours */
} weft_rename_rule;
typedef struct weft_dialect {
    const char *name;   /* "diffusers": the family's own, without rules; "original" */
    const char *marker; /* a tensor that only this dialect of this family has */
    const weft_rename_rule *rule;
    int rules;
    int spellings; /* the first so many rules are other spellings of theirs: read, never written */
    bool no_adapters; /* their readers want the model's own names: none is written in these */
} weft_dialect;

typedef struct weft_text_shape {
    int64_t length, width; /* tokens of a prompt, width of an embedding */
    int64_t bytes;         /* of a prompt that are read; 0: as many as the tokens hold */
    int64_t pooled;        /* width of the one vector of a prompt; 0: it gives none */
    int64_t layers;        /* that it tells as WEFT_PORT_TEXT_LAYERS, (B,N,L,D) here; 0: none */
    /* of what is shown a picture beside the text (WEFT_PORT_VIDEO): its side in pixels, in how many
     * tokens it stands, and which these are; 0: it is shown none */
    int64_t picture, patches, picture_token;
} weft_text_shape;

/* What is done to a text before it is cut into tokens (text/clean.h). */
typedef enum weft_cleaning {
    WEFT_CLEAN_NOTHING,
    WEFT_CLEAN_PROMPT, /* damage repaired, entities, white space */
    WEFT_CLEAN_LOWER   /* small letters, no white space at its ends */
} weft_cleaning;

/* How a text is read by an encoder that is shown the video's first frame beside it: in the places
 * of what the reading says of other encoders. Of the tokens
 *
 *     before: ... <image> ... | text | behind: ... <closes> ...
 *                 at          crop            |<-- cut ->|
 *
 * <image> becomes `patches` tokens. The denoiser is told every n-th of these (weft_given_frames),
 * then those from `crop` on, without the `cut` ones that end with the last <closes>, of which there
 * are `closings`; where a text is so long that the last is cut off, with the end instead. */
typedef struct weft_shown {
    const char *before, *behind;
    int64_t crop;
    const char *image, *closes;
    int64_t at, patches, cut, closings;
} weft_shown;

/* How a denoiser is told a text by one of its encoders. Ports: WEFT_PORT_LATENTS (0): none. */
typedef struct weft_reading {
    const char *encoder, *tokenizer; /* their folders in a pipeline */
    weft_port text, mask, pooled;    /* of the denoiser: what the encoder's outputs are given as */
    int64_t length;                  /* tokens of a text; 0: as many as the encoder takes */
    const char *before, *behind;     /* a template around every text; NULL: nothing */
    int64_t crop;                    /* tokens of `before`, whose embeddings are left away */
    weft_cleaning clean;
    bool sees_padding; /* the encoder is not told which tokens are padding */
    bool zeros;        /* embeddings behind the text are zeros */
    bool paired;       /* of a negative text as many tokens are seen as of its prompt */
    weft_port layers;  /* of the denoiser: all layers of the encoder are given as it */
    const struct weft_shown *shown; /* to an encoder that sees a picture beside; NULL: to none */
} weft_reading;

/* How a denoiser is told frames that are given: an image that a video begins or ends with. */
typedef enum weft_given_form {
    WEFT_GIVEN_NOT,
    /* Behind the noisy latents on channels: which frames they are, and their latents */
    WEFT_GIVEN_CHANNELS,
    /* In their places, without noise, and told so: */
    WEFT_GIVEN_TIMES,     /* by a timestep of each token, theirs 0 */
    WEFT_GIVEN_FRAMES,    /* by WEFT_PORT_FRAME_MASK, theirs 0 */
    WEFT_GIVEN_CONDITION, /* by WEFT_PORT_CONDITION, theirs 1 */
    WEFT_GIVEN_PLACES,    /* by nothing: a model with this config always has its first given */
} weft_given_form;
typedef struct weft_given_frames {
    weft_given_form form;
    /* CHANNELS: before the latents one that says "given" for each frame of a latent one; those that
     * are not given are latents of grey pixels, else zeros */
    bool marks, grey;
    bool mark_behind; /* CHANNELS: one behind them instead, which says so of a whole latent frame */
    bool last;        /* a last frame may be given beside the first */
    bool last_must;   /* and has to be */
    /* TIMES: models with this config may have been trained so or not; their folder says it */
    bool asks;
    /* Every n-th token of the picture that a text encoder sees is told (weft_shown); 0: it is shown
     * none */
    int64_t picture_step;
    /* Published folders: so much of the picture is in the noise of every frame at the beginning,
     * and so many latent frames go before the video, which are thrown away when they are decoded */
    double tint;
    int64_t lead;
} weft_given_frames;

/* The tiles that a reference takes large pictures in (model/tiling.h): frames, rows and columns of
 * pixels, and from one tile to the next. Frames 0: no tiles of time; else videos that are longer
 * than one are taken in them, whatever the picture's size. */
typedef struct weft_tile_rule {
    int64_t size[3], step[3];
    bool parts; /* the overlap is a part of a tile, rounded down on either side of the half */
} weft_tile_rule;

/* Levels that a pipeline gives its flow scheduler, of n steps. */
typedef enum weft_own_levels {
    WEFT_LEVELS_NONE,      /* the scheduler's own */
    WEFT_LEVELS_EVEN,      /* from 1 to 1/n in even steps */
    WEFT_LEVELS_QUADRATIC, /* Mochi's: a fortieth of the way in half of the steps, then a square */
} weft_own_levels;

/* A rule for what a step of denoising may take again (generate/cache.h), with thresholds as they
 * were published or measured. The first row that fits is taken. */
typedef struct weft_cache_row {
    bool (*fits)(const void *config); /* NULL: any config of the family */
    int64_t pixels;                   /* of a frame, from which on it holds */
    /* BLOCK: the change of what the first block adds, as it is. Others: through the polynomial,
     * highest power first, and added up from step to step (TeaCache) */
    weft_reuse_signal signal;
    double coefficient[5];
    double conservative, fast; /* thresholds */
    double warm;               /* share of the steps before it is used */
} weft_cache_row;

struct weft_family {
    const char *class_name; /* "_class_name" in config.json */
    const char *also;       /* another that is read as it; NULL: none */
    weft_role role;
    const char *scope;       /* its folder in a pipeline and the scope of its parameters */
    const char *stem;        /* of the files with its weights */
    const char *library;     /* that model_index.json names beside the class */
    const char *pipeline;    /* denoisers: the class of the whole in model_index.json */
    const char *autoencoder; /* denoisers: the class that makes the latents of its public sizes */
    bool clamps;             /* autoencoders: the reference's forward() clamps what it decodes */
    const char *marks[2];    /* fields that tell the family where "_class_name" is absent */
    const char *model_type; /* "model_type" of transformers' configs, which have no "_class_name" */

    size_t config_bytes; /* at most WEFT_MODEL_CONFIG_BYTES */
    const weft_field *field;
    int fields;
    weft_status (*check)(const void *config, const weft_places *places); /* beyond the table */
    /* fields that the model does not read, next to its library's; ends with a key of NULL; NULL:
     * none */
    const weft_unused_field *unused;
    const weft_named_config *sizes; /* published ones, ends with a name of NULL; NULL: none */

    const weft_port_row *port;
    int ports;
    /* Of an input for a video of `size`; rank 0 for a port that the family lacks. */
    weft_shape (*shape)(const void *config, const weft_model_size *size, weft_port port);
    /* Reads its inputs from `ports` and leaves its outputs there. */
    void (*build)(weft_graph *g, const void *config, weft_call call, weft_ports *ports);

    bool negative; /* denoisers: the negative of the answer is what processes and samplers mean */
    void (*grid)(const void *config, weft_grid *grid); /* denoisers and autoencoders */
    weft_tile_rule tile;                               /* autoencoders */
    size_t statistics; /* autoencoders: where the config has its weft_statistics */
    /* Weights that training from nothing begins with; NULL: those of the graph's own. */
    void (*begin)(const void *config, const weft_weight *weight, int64_t count, uint64_t seed);
    /* denoisers: a row per text encoder */
    const weft_reading *reading;
    int readings;
    /* how frames are given; NULL: they are not */
    void (*given)(const void *config, weft_given_frames *given);
    const char *given_help;      /* which, for which configs */
    double fps;                  /* of its pipeline where nothing says one; 0: 16 */
    const char *guidance;        /* of its pipeline (diffusion/guidance.h); NULL: told, or cfg */
    weft_own_levels levels;      /* that its pipeline gives a flow scheduler */
    const weft_cache_row *cache; /* NULL: none is known */
    int caches;
    /* text encoders */
    void (*text)(const void *config, weft_text_shape *text);
    /* those that need no tokenizer's files; NULL: text/tokenizer.h makes the tokens */
    void (*tokens)(const void *config, const char *caption, int32_t *tokens); /* text.length */

    const weft_dialect *dialect;
    int dialects;

    /* How it can be split beyond samples and parameters (dp, fsdp): a list per axis. */
    const weft_recipe_list *const *recipe;
    int recipes;
};

/* The list of families, in model/registry.c; NULL-terminated. */
extern const weft_family *const weft_families[];

#endif
