/* A model family: one row per family, defined in the family's own file. The rest of weft uses only
 * this row. Training, generation, inspection and comparison work with roles, ports and grids,
 * independent of the family. */
#ifndef WEFT_MODEL_FAMILY_H
#define WEFT_MODEL_FAMILY_H

#include "base/json.h"
#include "graph/graph.h"
#include "transform/numeric/feature_cache_graphs.h"
#include "transform/sharding/recipes.h"

typedef enum weft_role {
    WEFT_ROLE_DENOISER,
    WEFT_ROLE_AUTOENCODER,
    WEFT_ROLE_AUDIO_AUTOENCODER, /* spectrograms as images */
    WEFT_ROLE_VOCODER,           /* spectrograms to waveforms */
    WEFT_ROLE_TEXT_ENCODER,
    WEFT_ROLE_TEXT_CONNECTORS, /* hidden states of a text encoder to embeddings */
    WEFT_ROLE_IMAGE_ENCODER,
    WEFT_ROLE_IDENTITY_ENCODER,
    WEFT_ROLE_COUNT
} weft_role;

/* ---- ports: inputs and outputs by meaning --------------------------------------------------- */

/*   B batch, T,Y,X latent frames, rows, columns, C channels, L tokens, D width                   */
/* clang-format off */
typedef enum weft_port {
    WEFT_PORT_LATENTS,        /* (B,T,Y,X,C)  input of a denoiser or a decoder                   */
    WEFT_PORT_TIMESTEP,       /* (B), (B,N)   noise process time per sample, frame or token      */
    WEFT_PORT_TEXT,           /* (B,L,D)      text embeddings of the prompt                      */
    WEFT_PORT_TEXT_MASK,      /* (B,L) i32    1: token, 0: padding                               */
    WEFT_PORT_TEXT2,          /* (B,L,D)      text embeddings of a second encoder                */
    WEFT_PORT_TEXT2_MASK,     /* (B,L) i32                                                       */
    WEFT_PORT_TEXT_LAYERS,    /* (N,B,L,D)    hidden states of all encoder layers                */
    WEFT_PORT_SIZES,          /* (B,6)        image: original size, target size, crop origin     */
    WEFT_PORT_POOLED,         /* (B,D)        pooled embedding of the prompt                     */
    WEFT_PORT_GUIDANCE,       /* (B)          guidance scale of a guidance-distilled model       */
    WEFT_PORT_IMAGE,          /* (B,L,D)      image embeddings                                   */
    WEFT_PORT_CONDITION,      /* (B,T,Y,X,C)  latents of given frames, and their mask            */
    WEFT_PORT_CONTROL,        /* (B,T,Y,X,C)  latents of a control video, and its mask           */
    WEFT_PORT_EDITED,         /* (B,N,Y,X,C)  latents of N images to edit, or of their N tokens  */
    WEFT_PORT_FACE,           /* (B,N,Y,X,3)  pixels of a video of the face, in [-1,1]           */
    WEFT_PORT_CONTROL_SCALE,  /* (N)          strength of the control in each control block      */
    WEFT_PORT_INDEX,          /* (B,T)        time position of each latent frame              */
    WEFT_PORT_HISTORY,        /* (B,N,Y,X,C)  other latent frames (Framepack); _2X and _4X:      */
    WEFT_PORT_HISTORY_2X,     /*              frames with tokens of 2 and 4 times the frames,    */
    WEFT_PORT_HISTORY_4X,     /*              rows and columns                                   */
    WEFT_PORT_HISTORY_INDEX,  /* (B,N)        time positions of the three                        */
    WEFT_PORT_HISTORY_2X_INDEX,
    WEFT_PORT_HISTORY_4X_INDEX,
    WEFT_PORT_CLEAN,          /* (B,T,Y,X,C)  the same video without noise (teacher forcing)     */
    WEFT_PORT_AUDIO,          /* (B,S,C)      audio latents of a denoiser of both                */
    WEFT_PORT_AUDIO_TIMESTEP, /* (B), (B,S)   their time, if it differs from the video's         */
    WEFT_PORT_LEVEL,          /* (B)          time of the video without its given frames         */
    WEFT_PORT_AUDIO_LEVEL,    /* (B)                                                             */
    WEFT_PORT_CROSS_TIMES,    /* (1) i32      1: attention between streams by the other's time   */
    WEFT_PORT_JOINED,         /* (B)          0: no attention between video and audio; else 1    */
    WEFT_PORT_ATTENDED,       /* (B)          0: perturbed blocks have no self-attention; else 1  */
    WEFT_PORT_AUDIO_TEXT,     /* (B,L,D)      text embeddings for the audio                      */
    WEFT_PORT_AUDIO_TEXT_MASK, /* (B,L) i32                                                     */
    WEFT_PORT_PADDING,        /* (B,T,Y,X,1)  1: pixels outside the image                        */
    WEFT_PORT_POSITIONS,      /* (B,3,S)      token positions in seconds, pixel rows and columns */
    WEFT_PORT_SPACING,        /* (3)          latent spacing in seconds, pixel rows and columns  */
    WEFT_PORT_ROPE_SCALE,     /* (3)          divisors of rotary angles of frames, rows, columns */
    WEFT_PORT_LATENT_MASK,    /* (B,T,Y,X) i32  1: inside the image                              */
    WEFT_PORT_FRAME_MASK,     /* (B,T) i32    0: given frame                                     */
    WEFT_PORT_HEIGHT,         /* (B)          pixels                                             */
    WEFT_PORT_WIDTH,          /* (B)          pixels                                             */
    WEFT_PORT_FPS,            /* (B)          frames per second                                  */
    WEFT_PORT_OFFSET,         /* (B)          strength of image conditioning (CogVideoX 1.5)     */
    WEFT_PORT_LABEL,          /* (B) i32      class label                                        */
    WEFT_PORT_TOKENS,         /* (B,L) i32    token ids of a prompt                              */
    WEFT_PORT_LAST_HIDDEN,    /* (B,L,D)      last layer of an encoder; TEXT may be another      */
    WEFT_PORT_VIDEO,          /* (B,T,Y,X,3)  pixels in [-1,1]                                   */
    WEFT_PORT_NOISE,          /* (B,T,Y,X,C)  noise of the posterior sample                      */
    WEFT_PORT_PREDICTION,     /* (B,T,Y,X,C)  prediction of a denoiser                           */
    WEFT_PORT_AUDIO_PREDICTION, /* (B,S,C)                                                       */
    WEFT_PORT_MEAN,           /* (B,T,Y,X,C)  posterior mean                                     */
    WEFT_PORT_LOGVAR,         /* (B,T,Y,X,C)  log variance of the posterior                      */
    WEFT_PORT_RECONSTRUCTION, /* (B,T,Y,X,3)  decoder output, not clamped                        */
    WEFT_PORT_SPECTROGRAM,    /* (B,C,S,M)    mel spectrogram: channels, steps, mel bins         */
    WEFT_PORT_WAVEFORM,       /* (B,C,N)      samples of sound in [-1,1]                         */
    WEFT_PORT_BALANCE,        /* ()           loss term that balances the load of experts        */
    WEFT_PORT_FULLEST,        /* ()           load of the fullest expert / even load             */
    WEFT_PORT_DROPPED,        /* ()           share of expert choices dropped over capacity      */
    WEFT_PORT_COUNT           /* at most 64: weft_model_size.present_ports                       */
} weft_port;

/* Layout of a video tensor in a reference implementation. */
typedef enum weft_video_form {
    WEFT_VIDEO_BCTYX,  /* (B,C,T,Y,X), or an image (B,C,Y,X) */
    WEFT_VIDEO_BTCYX,  /* (B,T,C,Y,X)                        */
    WEFT_VIDEO_BTYXC,  /* (B,T,Y,X,C), as here               */
    WEFT_VIDEO_PARTS,  /* (B,C,T,Y py,X px), as a latent of C py px channels here */
    WEFT_VIDEO_PACKED, /* (B,T Y X,C): tokens; with several latents per token (B,T Y X,C py px) */
} weft_video_form;

typedef struct weft_port_row {
    weft_port port;
    bool output;
    const char *reference; /* name in the reference's forward(), used in golden files */
    /* input: may be WEFT_NONE; output: only some configs have it, references do not */
    bool optional;
    weft_video_form form;
    /* inputs: weft's value = origin + reference value * unit; unit 0 (default): 1 */
    double unit, origin;
    /* Outputs: name of the loss target in golden files. If no port sets a target, the last output
     * is compared with "target". */
    const char *target;
} weft_port_row;

/* Samples packed into rows of N tokens: R rows with up to K samples each. The latents of a token
 * are stored together, as a video of N patches along the frames: (R, N pt, py, px, C). Per-sample
 * inputs (timestep, text) have the dim R K; sample k of row r is item r K + k. */
typedef struct weft_packed_rows {
    int64_t rows, samples; /* R, K */
    /* f32 (R,N,K): 1 for the sample of a token, 0 for the others. Padding belongs to sample 0. */
    weft_value owner;
    /* i32 (R,K,4), as WEFT_OP_ATTENTION reads them: tokens of each sample to themselves, and to
     * the L text tokens of the sample among K L. */
    weft_value segments, text_segments;
    weft_value position[3]; /* i32 (R,N): frame, row and column of a token in its sample */
} weft_packed_rows;

/* Images among tokens, in sequence. Sizes are in tokens. `at` is the first token of an image in a
 * text. */
enum { WEFT_MAX_IMAGES = 8 };
typedef struct weft_image_tokens {
    int count;
    struct {
        int64_t at, rows, columns;
    } of[WEFT_MAX_IMAGES];
} weft_image_tokens;

/* Values of one call. Unused ports are WEFT_NONE. */
typedef struct weft_ports {
    weft_value at[WEFT_PORT_COUNT];
    const weft_packed_rows *packed; /* borrowed; NULL: each item of the batch is a sample */
    /* Text encoders with layers: the hidden states in WEFT_PORT_TEXT, concatenated on the width.
     * Ends with 0, borrowed. NULL (default): as the encoder's config says. */
    const int64_t *hidden;
    /* Denoisers with weft_grid.caches or weft_frame_condition.caches_given: the call is for one
     * block of frames, after earlier ones (model/frame_cache.h). Borrowed; NULL (default): for a
     * complete video. */
    const struct weft_frame_cache *cache;
    /* Images of WEFT_PORT_EDITED with sizes of their own, or of WEFT_PORT_IMAGE among the tokens of
     * a text encoder. Borrowed; NULL: none. */
    const weft_image_tokens *images;
    /* Blocks whose self-attention WEFT_PORT_ATTENDED replaces by its values. Ends with -1,
     * borrowed; NULL (default): none. */
    const int64_t *perturbed;
} weft_ports;

/* Number of ports of every video autoencoder, with the names of the references. */
enum { WEFT_AUTOENCODER_PORTS = 5 };

/* Size of a video: in latents (denoiser, decoder) or pixels (encoder). `text` and `image` are token
 * counts. */
typedef struct weft_model_size {
    int64_t batch, frames, height, width, text;
    int64_t image;
    int64_t times;         /* timesteps per sample; 0 or 1: one, of rank 1 */
    /* Audio latents of WEFT_PORT_AUDIO; 0 (default): 1. Their timesteps, as `times`. */
    int64_t audio, audio_times;
    /* Encoder layers in WEFT_PORT_TEXT_LAYERS; 0 (default): the layers needed. Tokens of
     * WEFT_PORT_TEXT2; 0 (default): `text`. */
    int64_t layers, text2;
    /* Images of WEFT_PORT_EDITED, or their tokens if images have sizes of their own; 0: 1 */
    int64_t edited;
    /* Latent frames of WEFT_PORT_HISTORY, _2X and _4X; 0 (default): as published. */
    int64_t history[3];
    int64_t history_area[2]; /* their rows and columns; 0 (default): of the latents */
    uint64_t present_ports; /* bit p: optional port p is present */
} weft_model_size;

/* An autoencoder has an encoder and a decoder. Each half can process a stream in temporal chunks.
 * ALONE is the complete video in one call (training), FIRST the first chunk, NEXT every later
 * chunk. NEXT reads the preceding frames from states that FIRST and NEXT write. LAST ends the
 * stream of a decoder that lags (weft_grid.lag); other streams end with NEXT. In a graph for
 * several ranks, NEXT receives encoder frames from the preceding rank (model/halo.h). */
typedef enum weft_call_kind {
    WEFT_CALL_FORWARD,
    WEFT_CALL_ENCODE,
    WEFT_CALL_DECODE
} weft_call_kind;
typedef enum weft_stream {
    WEFT_STREAM_ALONE,
    WEFT_STREAM_FIRST,
    WEFT_STREAM_NEXT,
    WEFT_STREAM_LAST
} weft_stream;
typedef struct weft_call {
    weft_call_kind kind;
    weft_stream stream;
} weft_call;

/* ---- grid: pixels to latents, latents to tokens --------------------------------------------- */

/* Maximum latent channels with a mean and a deviation. Cosmos has 16 channels for each of 16
 * frames. */
enum { WEFT_MAX_CHANNELS = 128, WEFT_MAX_STATISTICS = 256 };

/* Grid of an autoencoder: pixels to latents. Grid of a denoiser: latents to tokens (its patch). */
typedef struct weft_grid {
    int64_t factor[3]; /* frames, rows, columns per latent or token */
    bool causal;       /* frame 0 is separate: 1 + factor n frames become 1 + n */
    /* Autoencoder: latent frames of a temporal chunk. The first chunk also takes the remainder of
     * the division. 0 (default): the complete video only. */
    int64_t piece;
    /* autoencoder: group size of the latent frames after the first; 0 (default): 1 */
    int64_t group;
    /* Autoencoder: frames that the first temporal chunk of a decoder does not return, because they
     * depend on the next latent frame. The last chunk (WEFT_STREAM_LAST) returns them. */
    int64_t lag;
    int64_t cell;     /* autoencoder: side of a pixel block packed into channels; 0: 1 */
    int64_t channels; /* latent channels */
    int64_t out_channels;
    /* Denoiser: the only supported latent frames, height and width, and number of text tokens. 0
     * (default): any. */
    int64_t only[3], text;
    /* Latent frames of a section of a video. Sections are encoded and decoded as videos of their
     * own, and a video has whole sections. 0 (default): the video is one section of any length */
    int64_t section;
    /* Autoencoder: latent frames of a clip, which is a video of its own. A video has whole clips,
     * or is shorter than one. 0 (default): a video is one clip of any length */
    int64_t clip;
    /* Denoiser: frames of tokens that attend to each other in both directions; a video has whole
     * blocks. 0 (default): 1 */
    int64_t block;
    bool pads;     /* denoiser: pads rows and columns to whole tokens: latents of any size fit */
    int64_t least; /* denoiser: least latent frames of a video; 0 (default): 1 */
    /* Denoiser: a block attends to earlier blocks only, through keys and values that calls with
     * weft_ports.cache keep. `window`: frames of tokens that a block attends to, its own included,
     * 0 (default): all; `sink` of them are the first of the video. */
    bool caches;
    int64_t window, sink;
    /* Autoencoder: number of first latent frames that have statistics of their own. Later frames
     * have no statistics. Autoencoder of audio: number of latent mel bins, all with their own
     * statistics. 0 (default): statistics are per channel. */
    int64_t own_frames;
    double latents_per_second; /* autoencoder of audio */
    /* Autoencoder: latents of given frames are multiplied by the deviation, not divided. CogVideoX
     * 1.5 denoisers are trained this way. */
    bool inverted;
    double mean[WEFT_MAX_STATISTICS], deviation[WEFT_MAX_STATISTICS];
} weft_grid;

/* ---- config: one table per family ----------------------------------------------------------- */

typedef enum weft_field_type {
    WEFT_FIELD_I64,
    WEFT_FIELD_F64,
    WEFT_FIELD_BOOL,
    WEFT_FIELD_I64S, /* lists: up to `capacity` items in the struct */
    WEFT_FIELD_F64S,
    WEFT_FIELD_BOOLS,
    WEFT_FIELD_WORDS,   /* list of WEFT_FIELD_WORD, int64_t each */
    WEFT_FIELD_WORD,    /* int64_t index in `words` (JSON values); default without fallback: 0 */
    WEFT_FIELD_EACH,    /* no member: only a list of `length` times `fallback` is supported */
    WEFT_FIELD_FIXED,   /* no member: only `fallback` is supported, and is written */
    WEFT_FIELD_IGNORED, /* no member: any value is accepted, `fallback` is written */
    WEFT_FIELD_DERIVED, /* no member: must equal the value that `length` computes */
    /* Config of a nested model, by the table of the family `part`. With a fallback of "null" the
     * model may be absent; then the first member of its struct, an int64_t, is 0. */
    WEFT_FIELD_PART,
} weft_field_type;

/* Source of a field's default if the config lacks the field and other models of the run determine
 * it. */
typedef enum weft_default_source {
    WEFT_DEFAULT_SOURCE_NOTHING,
    WEFT_DEFAULT_SOURCE_LATENTS, /* channels of the autoencoder's latents */
    WEFT_DEFAULT_SOURCE_TEXT,    /* width of the text encoder's embeddings */
} weft_default_source;

typedef struct weft_field {
    const char *key;
    weft_field_type type;
    size_t offset; /* offset in the family's struct, bytes */
    /* Default as JSON. "=key": the value of the field `key`, which must be above in the table.
     * NULL: `length` computes the default. A number whose default is null becomes 0. */
    const char *fallback;
    double min, max; /* range of numbers and list items; both 0: no limit */
    int capacity;    /* lists: maximum items */
    size_t count;    /* lists of any length: offset of the int64_t item count */
    /* Lists: required number of items; NULL: 0 to capacity. DERIVED, and fields with a fallback of
     * NULL: the value. */
    int64_t (*length)(const void *config);
    weft_default_source default_source;
    const char *help;
    const char *const *words; /* allowed values; ends with NULL */
    bool spread;              /* lists with `length`: a single value sets every item */
    /* Locations of the field in other versions of the config, separated by '|': "key", or the path
     * of a key in objects, as "object.key". */
    const char *also;
    /* The object of a written config that has the field, unless its value is 0 or the first word.
     * NULL: the config itself. weft's own configs may have the field in the object or outside. */
    const char *object;
    const struct weft_family *part;
} weft_field;

/* A field of the reference's config that the model does not read. "object.key" is a key of an
 * object on a path in a field's `also`. */
typedef struct weft_unused_field {
    const char *key;
    const char *only; /* only accepted value, as JSON; NULL: any */
    bool each;        /* also accepts a list whose items all equal `only` */
    /* Returns the only accepted value, computed from the other fields. NULL: `only`. */
    const char *(*implied)(const void *config);
} weft_unused_field;

/* Latent statistics in an autoencoder's config. A denoiser's latents are (z - mean - shift) scale /
 * deviation, with mean and deviation per channel. `scale` 0: the config has no such field. */
typedef struct weft_statistics {
    double scale, shift;
    double mean[WEFT_MAX_STATISTICS], deviation[WEFT_MAX_STATISTICS];
    /* Added to the variances in a file of weights, which has no deviations. */
    double variance_epsilon;
    /* Items in the lists of mean and deviation, ordered (channel, frame), for any number of frames.
     * 0 (default): unknown. Not used by families with one value per channel. */
    int64_t count[2];
} weft_statistics;

/* clang-format off */
/* Table rows of mean and deviation for a weft_statistics at offset `at`. channels(config) is their
 * length. */
#define WEFT_STATISTICS_FIELDS(at, channels)                                                       \
    {"latents_mean", WEFT_FIELD_F64S, (at) + offsetof(weft_statistics, mean), "0",                 \
     .capacity = WEFT_MAX_CHANNELS, .length = channels,                                            \
     .help = "mean of each latent channel over the data set"},                                     \
    {"latents_std", WEFT_FIELD_F64S, (at) + offsetof(weft_statistics, deviation), "1", 1e-30, 1e30,\
     .capacity = WEFT_MAX_CHANNELS, .length = channels,                                            \
     .help = "standard deviation of each latent channel over the data set"}
/* clang-format on */

/* Source locations of the fields of a config, for error messages. */
typedef struct weft_config_locations {
    const char *where; /* file, or file and line */
    int64_t count;
    /* [count] fields with their own location; NULL: all at `where` */
    const char *const *key, *const *key_where;
    bool strict; /* reject fields that are not in the table */
} weft_config_locations;

typedef struct weft_family weft_family;

/* ---- the row -------------------------------------------------------------------------------- */

/* Memory of a parameter that a family initializes for training from scratch. */
typedef struct weft_weight {
    const char *name; /* name in the public checkpoint */
    weft_shape shape;
    float *data;
} weft_weight;

typedef struct weft_named_config {
    const char *name, *json;
} weft_named_config;

/* Renames parts of checkpoint keys. Rules apply in order. Each rule replaces every match of
 * `foreign_name` that is bounded by dots or by the ends of the key. "#" in `foreign_name` matches a
 * number, and the n-th "#" of `name` inserts the n-th number. Marks in `name`:
 *   "{a,b,c}"   the foreign tensor is the concatenation of tensors a, b, c along dim 0
 *   "%{a,b}"    interleaved: the first halves of all tensors, then the second halves
 *   "&{a,b}"    the model has the foreign tensor twice: a and b are equal
 *   "[a,b]"     the alternative that the model has
 *   "~"         the halves along dim 0 are swapped
 *   ""          at the beginning of a key: the model does not have the tensor */
typedef struct weft_rename_rule {
    const char *foreign_name, *name;
    int ones;      /* trailing dims of 1 of a foreign matrix */
    bool channels; /* a foreign vector of C elements has the sizes (1,C,1,1) */
} weft_rename_rule;
typedef struct weft_key_mapping {
    const char *name;   /* "diffusers": the family's own names, without rules; or "original" */
    const char *marker; /* a tensor that only this key mapping of this family has */
    const weft_rename_rule *rule;
    int rules;
    int spellings; /* number of leading rules that are only read, never written */
    /* no adapter file is written with these names, because their programs read the model's names */
    bool no_adapters;
    /* A second tensor, without which a file with `marker` is of another family. NULL: none */
    const char *also;
    /* Parts of names, with dots around them. Tensors with such a part may be missing in the model,
     * which then does not need them. Ends with NULL. NULL: none */
    const char *const *unused;
} weft_key_mapping;

typedef struct weft_text_shape {
    int64_t length, width; /* tokens per prompt, width of an embedding */
    int64_t bytes;         /* bytes of a prompt that are read; 0: as many as the tokens hold */
    int64_t pooled;        /* width of the pooled embedding; 0: none */
    int64_t layers;        /* layers output as WEFT_PORT_TEXT_LAYERS, here (B,N,L,D); 0: none */
    /* Encoders with a vision input (WEFT_PORT_VIDEO): side of the image in pixels, tokens per
     * image, and the id of an image token. 0 (default): no vision input. */
    int64_t image_side, patches, image_token;
    bool unmasked; /* pipelines do not give the encoder its mask */
} weft_text_shape;

/* Cleaning of a text before tokenization (text/clean.h). */
typedef enum weft_cleaning {
    WEFT_CLEAN_NOTHING,
    WEFT_CLEAN_PROMPT, /* repairs encoding damage, decodes entities, normalizes white space */
    WEFT_CLEAN_LOWER,  /* lower case, trimmed */
    WEFT_CLEAN_TRIM    /* trimmed */
} weft_cleaning;

/* Prompt template of a text encoder whose vision input is the first frame of the video. `before`,
 * `after` and `crop` replace the members of weft_text_encoder_row. Token positions:
 *
 *     before: ... <image> ... | text | after: ... <closes> ...
 *                 at          crop            |<-- cut ->|
 *
 * <image> becomes `patches` tokens. The denoiser gets every n-th image token (image_token_step of
 * weft_frame_condition), then the tokens from `crop` on. The last `cut` tokens up to the last
 * <closes> are dropped. If truncation of a long text leaves fewer than `closings` <closes> tokens,
 * the last `cut` tokens of the sequence are dropped. */
typedef struct weft_vision_input {
    const char *before, *after;
    int64_t crop;
    const char *image, *closes;
    int64_t at, patches, cut, closings;
} weft_vision_input;

/* Hidden states of a text encoder that a denoiser takes. */
enum { WEFT_HIDDEN_LAST = -1, WEFT_MAX_HIDDEN = 3 };

/* Text conditioning of a denoiser from one of its encoders. Ports: WEFT_PORT_LATENTS (0) means
 * none. */
typedef struct weft_text_encoder_row {
    const char *encoder, *tokenizer; /* folder names in a pipeline */
    weft_port text, mask, pooled;    /* ports of the denoiser for the encoder's outputs */
    /* tokens per text; 0 (default): as many as the encoder takes */
    int64_t length;
    int64_t length_without_guidance; /* tokens for models without embedded guidance; 0: length */
    const char *before, *after;      /* template around every text; NULL: none */
    /* Texts of the pipeline before prompts and before negative prompts, in place of `before`.
     * Captions have `before`. NULL: `before` */
    const char *prompt_before, *negative_before;
    int64_t crop; /* leading template tokens whose embeddings are dropped */
    weft_cleaning clean;
    bool sees_padding;    /* the encoder gets no padding mask */
    bool own_side;        /* padding is on the side in the config of the tokenizer */
    bool zeros;           /* embeddings after the text are zeros */
    bool paired;          /* a negative prompt has the token mask of its prompt */
    int64_t seen_padding; /* padding tokens after the text that the mask of the denoiser shows */
    weft_port layers;     /* port of the denoiser for all layers of the encoder */
    const struct weft_vision_input *vision; /* image input of the encoder; NULL: none */
    const char *empty;                      /* replaces an empty text; NULL: none */
    /* Hidden states of a language model that `text` takes, concatenated on the width. n is the
     * output of block n, WEFT_HIDDEN_LAST the output of the norm after all blocks. Ends with 0.
     * All 0 (default): as the encoder's config says. */
    int64_t hidden[WEFT_MAX_HIDDEN + 1];
    /* `text` takes the hidden states of all blocks, concatenated on the width. Each has a mean of 0
     * and a deviation of 1 in every token. */
    bool all_hidden;
    /* The row is for configs that fit. NULL (default): any config of the family. */
    bool (*fits)(const void *config);
    /* The encoder reads only the parts of a text in quotation marks. Without such parts all its
     * tokens are padding. */
    bool quoted;
    /* `before` is an instruction for prompts, not for negative prompts and empty captions. The
     * conditioning has the first token and the tokens from the instruction's last one on
     * (prompt/text_rows.h). */
    bool instruction;
    /* Published models: text after prompts that lack `prompt_mark`. NULL: none */
    const char *prompt_after, *prompt_mark;
    /* Published models: tensor (L,D) in the denoiser's files, the embeddings of an empty negative
     * prompt, which has the token mask of its prompt. NULL: the encoder's embeddings of "" */
    const char *no_text;
    /* Folder of a model between the encoder and the denoiser (WEFT_ROLE_TEXT_CONNECTORS), which
     * makes `text` and `audio_text` from the hidden states of all layers. NULL: none. */
    const char *connectors;
    weft_port audio_text;
} weft_text_encoder_row;

/* A published pipeline that edits images of any size. The text encoder also sees the images. An
 * image is scaled to an area, its sides are rounded to multiples of 32 pixels. */
typedef struct weft_edit_pipeline {
    const char *class_name;    /* in model_index.json */
    int images;                /* maximum */
    int64_t area, seen_area;   /* pixels of an image for the autoencoder and the text encoder */
    const char *before, *each; /* template before all images, and of one; "#" is its number */
    const char *image;         /* token in `each` that the image's tokens replace */
    const char *after;         /* template after the text */
    int64_t crop;              /* leading template tokens whose embeddings are dropped */
} weft_edit_pipeline;

/* Image conditioning of a denoiser: how it takes given frames, such as a first or a last frame. */
typedef enum weft_frame_condition_kind {
    WEFT_FRAME_CONDITION_NONE,
    /* Extra channels after the noisy latents: a mask of the given frames, and their latents. */
    WEFT_FRAME_CONDITION_CHANNELS,
    /* WEFT_PORT_EDITED: the latents of an image to edit. No frame is given. */
    WEFT_FRAME_CONDITION_EDITED,
    /* The remaining kinds replace the noisy latents of given frames, and mark given frames by: */
    WEFT_FRAME_CONDITION_TIMES,      /* a timestep per token, 0 for given frames */
    WEFT_FRAME_CONDITION_FRAME_MASK, /* WEFT_PORT_FRAME_MASK, 0 for given frames */
    WEFT_FRAME_CONDITION_PORT,       /* WEFT_PORT_CONDITION, 1 for given frames */
    WEFT_FRAME_CONDITION_IMPLICIT,   /* no mark: the first frame is given in all inputs */
    /* The video is denoised section by section: WEFT_PORT_HISTORY has the image and frames of other
     * sections. */
    WEFT_FRAME_CONDITION_HISTORY,
    /* Extra channels as CHANNELS. The first latent frame is the image of a character, and is
     * dropped before decoding. The control has poses, WEFT_PORT_FACE a face. */
    WEFT_FRAME_CONDITION_CHARACTER,
} weft_frame_condition_kind;
typedef struct weft_frame_condition {
    weft_frame_condition_kind form;
    /* CHANNELS. marks: one mask channel per frame of a latent frame, before the latents. grey:
     * frames that are not given are latents of grey pixels; otherwise zeros. */
    bool marks, grey;
    bool mark_after; /* CHANNELS: one mask channel per latent frame, after the latents */
    /* CHANNELS: the latents of given frames replace the noisy ones. The extra channels have the
     * marks and zeros. */
    bool in_place;
    /* CHANNELS, PORT: the model also works without an image: the channels or marks are zeros */
    bool also_none;
    bool resized;   /* the image encoder sees the image in the size of the video */
    bool unrounded; /* its preprocessing does not round colours to 8 bits */
    /* Folder of the text encoder whose vision part is the image encoder (weft_joint_model).
     * NULL (default): the image encoder has its own folder, image_encoder */
    const char *image_encoder;
    bool last;      /* supports a last frame in addition to the first */
    bool last_must; /* requires the last frame */
    /* TIMES: only some models with this config were trained this way; the model's folder records
     * this. */
    bool asks;
    /* Stride of the image tokens of the text encoder that the denoiser gets (weft_vision_input). 0
     * (default): the text encoder gets no image. */
    int64_t image_token_step;
    /* Published models only: share of the image in the initial noise of every frame, and number of
     * latent frames before the video, which are dropped after decoding. */
    double image_noise_share;
    int64_t lead;
    int64_t section; /* HISTORY: latent frames of a section */
    /* HISTORY: the video is sections in order, which are videos of their own for the autoencoder. A
     * given image or video precedes the video. Without one, the history is zeros, and the first
     * frame of the video is the image of later sections. */
    bool precedes;
    /* Published models only: number of first latent frames whose mean and deviation are moved
     * towards the moments of the next frames at the end. 0: none. */
    int64_t settled;
    /* The model takes a timestep per frame of tokens, and frames may have different noise levels.
     * TIMES: timesteps are per frame, not per token. */
    bool frame_levels;
    /* PORT: timestep of given frames, on a path of flow matching. */
    double given_time;
    /* Given frames end on the straight line from the noise to the image, above the first noise
     * level. Their noise is not scaled, and the first level is below 1. */
    bool keeps_noise;
    /* A video of two latent frames may have further frames between the two in the first steps. */
    bool reasons;
    /* FRAME_MASK: given frames attend to each other only. With weft_ports.cache the model takes the
     * frames after them; a call that adds to the cache takes the given frames. */
    bool caches_given;
    /* FRAME_MASK: given frames are a multiple of this number of latent frames. 0 (default): 1 */
    int64_t whole;
    /* Guidance does not see the frames of a given video, only those after them. It sees given
     * images. */
    bool apart;
    /* Steps at even levels from 0.5 on that end the schedule after a given video, in place of the
     * levels below 0.5. 0 (default): none */
    int64_t tail_steps;
    /* Refinement of a coarse video (generate/conditioning/refinement.h): the noise level at which
     * denoising begins, and the latent frames of which given and other frames are multiples. 0
     * (default): the model refines no video. */
    double refine_level;
    int64_t refine_whole;
} weft_frame_condition;

/* Tiles of a reference for large frames (model/tiling.h): size and step in frames, rows and columns
 * of pixels. Frames 0: no temporal tiles. Otherwise videos longer than one tile are tiled in time
 * at every frame size. */
typedef struct weft_tile_rule {
    int64_t size[3], step[3];
    bool parts; /* overlap as a fraction of the tile; overlap and step are each rounded down */
    /* Videos of all sizes are tiled, also without a request. The last tile of a side is the first
     * one that reaches the border, and the output is the sum of tiles with linear weights. */
    bool sums;
} weft_tile_rule;

/* Noise levels that a pipeline sets in its flow scheduler, for n steps. */
typedef enum weft_own_levels {
    WEFT_LEVELS_NONE,         /* the scheduler's own */
    WEFT_LEVELS_EVEN,         /* from 1 to 1/n in even steps */
    WEFT_LEVELS_EVEN_FLUX2,   /* the same; their shift also depends on n */
    WEFT_LEVELS_EVEN_SHIFT7,  /* the same; a shift by resolution is at most 7 */
    WEFT_LEVELS_EVEN_BELOW_1, /* from 0.999, in even steps towards 0 */
    WEFT_LEVELS_EVEN_TO_0001, /* from 1 to 0.001 in even steps */
    /* Mochi: linear over 1/40 of the range in half of the steps, then quadratic */
    WEFT_LEVELS_QUADRATIC,
} weft_own_levels;

/* Rule for the feature cache of a denoising step (feature_cache.h), with published or measured
 * thresholds. The first row that fits is used. */
typedef struct weft_feature_cache_row {
    bool (*fits)(const void *config); /* NULL: any config of the family */
    int64_t pixels;                   /* minimum pixels of a frame */
    /* BLOCK: the change of the first block's residual, unscaled. Other signals: this polynomial of
     * the change, highest power first, accumulated over the steps (TeaCache). */
    weft_feature_cache_signal signal;
    double coefficient[5];
    double conservative, fast; /* thresholds */
    double warm;               /* share of the steps before the first reuse */
} weft_feature_cache_row;

/* A published folder of several models with one config.json, of which the family is one. */
typedef struct weft_joint_model {
    /* type in the config.json, or several separated by '|'; NULL: the family is published alone */
    const char *model_type;
    const char *key;    /* field with this family's config */
    const char *shared; /* field of the config.json that this family's config has as well */
} weft_joint_model;

/* A second model of a published pipeline, which is a part of this one here: a WEFT_FIELD_PART. */
typedef struct weft_companion {
    /* Its folder next to the family's or inside it, the field with its config, and the first part
     * of its parameters' names */
    const char *folder;
    const char *mark; /* field of the family's config that says that the pipeline has one */
    const weft_family *family;
} weft_companion;

struct weft_family {
    const char *class_name; /* "_class_name" in config.json */
    const char *also;       /* alternative class name; NULL: none */
    weft_role role;
    const char *scope;    /* folder in a pipeline and scope of the parameters */
    const char *stem;     /* stem of the names of weight files */
    const char *library;  /* library next to the class in model_index.json */
    const char *pipeline; /* denoisers: class of the pipeline in model_index.json */
    /* Denoisers: the class of models trained with a given first frame. NULL: `pipeline` */
    const char *image_pipeline;
    /* The class, if it depends on the config. `image`: trained with a given first frame. NULL: the
     * classes above */
    const char *(*pipeline_of)(const void *config, bool image);
    /* Denoisers: key of model_index.json that is true if given frames have a timestep of their own
     * (WEFT_FRAME_CONDITION_TIMES). NULL: none */
    const char *times_key;
    /* denoisers: class or size name of the published models' autoencoder */
    const char *autoencoder;
    const char *(*autoencoder_of)(const void *config); /* replaces `autoencoder`. NULL: none */
    int64_t frames; /* denoisers: usual number of frames, if below 81. 0: no such number */
    /* Denoisers: maximum frames of a video that the published pipeline generates in one piece; 0:
     * any number. NULL: any number */
    int64_t (*piece)(const void *config);
    bool clamps;            /* autoencoders: the reference's forward() clamps its output */
    bool packs;             /* denoisers: accepts weft_ports.packed without image tokens */
    const char *marks[2];   /* fields that identify the family if "_class_name" is absent */
    const char *model_type; /* "model_type" in configs of transformers, which lack "_class_name" */
    weft_joint_model joint;
    const weft_companion *companion; /* NULL: none */

    size_t config_bytes; /* at most WEFT_MODEL_CONFIG_BYTES */
    const weft_field *field;
    int fields;
    weft_status (*check)(const void *config,
                         const weft_config_locations *locations); /* beyond the field table */
    /* Fields that the model does not read, in addition to its library's. Ends with a key of NULL.
     * NULL: none. */
    const weft_unused_field *unused;
    const weft_named_config *sizes; /* published sizes; ends with a name of NULL; NULL: none */

    const weft_port_row *port;
    int ports;
    /* Returns the shape of an input for a video of `size`. Rank 0: the family lacks the port. */
    weft_shape (*shape)(const void *config, const weft_model_size *size, weft_port port);
    /* Reads the inputs from `ports` and writes the outputs there. */
    void (*build)(weft_graph *g, const void *config, weft_call call, weft_ports *ports);

    /* Denoisers: whether flow matching has timesteps from 0 to 1, not to 1000. NULL: no config. */
    bool (*unit_times)(const void *config);
    /* Denoisers: whether published pipelines give the optional input. NULL: every one. */
    bool (*piped)(const void *config, weft_port port);
    bool negative; /* denoisers: noise processes and samplers use the negated prediction */
    /* `negative` is new: models of earlier versions, whose weft.json lacks "negative", predict the
     * opposite */
    bool was_positive;
    void (*grid)(const void *config, weft_grid *grid); /* denoisers and autoencoders */
    weft_tile_rule tile;                               /* autoencoders */
    /* Sets the sizes and steps of `tile` by the config. NULL: they are the same for all configs */
    void (*set_tile)(const void *config, weft_tile_rule *tile);
    size_t statistics; /* autoencoders: offset of weft_statistics in the config */
    bool factors;      /* autoencoders: the config has factors on latents in place of deviations */
    /* autoencoders with WEFT_PORT_TIMESTEP: offset of a double in the config, not a field: the
     * timestep of a decoder that is called without the port (default 0) */
    size_t decode_timestep;
    /* Fills the initial weights for training from scratch. NULL: the graph's initial values. */
    void (*begin)(const void *config, const weft_weight *weight, int64_t count, uint64_t seed);
    /* denoisers: one row per text encoder */
    const weft_text_encoder_row *text_encoder;
    int text_encoders;
    /* Sets how given frames are taken. NULL: no image conditioning. */
    void (*frame_condition)(const void *config, weft_frame_condition *cond);
    const char *frame_condition_help; /* summary of the kinds and their configs */
    /* Field of the config that turns block-sparse attention on, a boolean. NULL: none */
    const char *block_sparse;
    /* Pipelines whose models edit images with sizes of their own. Ends with a class_name of NULL.
     * NULL: none */
    const weft_edit_pipeline *edit_pipeline;
    /* Pipeline that denoises latents of several sizes in sequence, by the stages of its scheduler.
     * NULL: none */
    const char *staged_pipeline;
    /* default frame rate of the pipeline, frames per second; 0: 16 */
    double fps;
    double image_fps; /* published models: frame rate of an image as conditioning; 0: of a video */
    /* pipeline's guidance method (diffusion/guidance.h); NULL: embedded, or cfg */
    const char *guidance;
    weft_own_levels noise_levels; /* noise levels that the pipeline sets in a flow scheduler */
    const weft_feature_cache_row *cache; /* NULL: no known rule */
    int caches;
    /* Denoisers: linear layers that an adapter changes by default (transform/numeric/trainable.h):
     * the projections of attention, as users of the family adapt them. Ends with NULL. NULL: the
     * names of diffusers (weft_family_lora_targets) */
    const char *const *lora_targets;
    /* text encoders */
    void (*text)(const void *config, weft_text_shape *text);
    /* Text encoders without tokenizer files. NULL: text/tokenizer.h makes the tokens. */
    /* text.length items */
    void (*tokens)(const void *config, const char *caption, int32_t *tokens);

    const weft_key_mapping *mapping;
    int mappings;

    /* Recipes for axes other than dp and fsdp: one list per axis. */
    const weft_recipe_list *const *recipe;
    int recipes;
};

#endif
