/* Data: tensors in files, videos, images, and batches from shards. */
#ifndef WEFT_DATA_H
#define WEFT_DATA_H

#include "weft/core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tensors in files ------------------------------------------------------------------------ */

/* Named tensors in mapped files. Thread-safe after opening. */
typedef struct weft_tensors weft_tensors;
/* A tensor of a file. */
typedef struct weft_stored_tensor weft_stored_tensor;

/* Opens a file (safetensors, GGUF, or torch without code), an index of shards (.index.json), or a
 * folder with one of the usual names. Header, shapes and offsets are checked, and data is mapped.
 * Close with weft_tensors_close. */
weft_status_code weft_tensors_open(const char *path, weft_tensors **tensors);
void weft_tensors_close(weft_tensors *tensors);
int64_t weft_tensors_count(const weft_tensors *tensors);
/* Tensor `index` in the order of names, 0 <= index < count. Valid until the file is closed. */
const weft_stored_tensor *weft_tensors_at(const weft_tensors *tensors, int64_t index);
const weft_stored_tensor *weft_tensors_find(const weft_tensors *tensors, const char *name);
/* A string of the file's metadata; NULL: none. */
const char *weft_tensors_metadata(const weft_tensors *tensors, const char *key);

typedef struct weft_stored_description {
    size_t size;
    const char *name; /* valid until the file is closed */
    const char *type; /* type in the file, "bf16" or "Q4_K" */
    weft_dtype dtype; /* type after expansion */
    int rank;         /* at most 8 */
    int64_t dim[8];   /* sizes [rank] */
} weft_stored_description;
weft_status_code weft_stored_describe(const weft_stored_tensor *tensor,
                                      weft_stored_description *description);
/* Elements [first, first + count) as f32. WEFT_E_ARG: outside of the tensor. */
weft_status_code weft_stored_get_f32(const weft_stored_tensor *tensor, int64_t first, int64_t count,
                                     float *values);

/* Writes safetensors: declare all tensors, then give their data in the same order. */
typedef struct weft_tensors_writer weft_tensors_writer;

/* Writes <folder>/<stem>.safetensors, or several files of at most `max_file_bytes` (0: one file)
 * with an index. Creates the folder. Free with weft_tensors_writer_free, which removes an
 * unfinished file. */
weft_status_code weft_tensors_writer_create(const char *folder, const char *stem,
                                            int64_t max_file_bytes, weft_tensors_writer **writer);
void weft_tensors_writer_free(weft_tensors_writer *writer);
weft_status_code weft_tensors_writer_metadata(weft_tensors_writer *writer, const char *key,
                                              const char *value);
weft_status_code weft_tensors_writer_declare(weft_tensors_writer *writer, const char *name,
                                             weft_dtype dtype, int rank, const int64_t *dim);
/* The data of the next declared tensor in the type `from`: F32, which is converted, or the declared
 * type. */
weft_status_code weft_tensors_writer_data(weft_tensors_writer *writer, const char *name,
                                          weft_dtype from, const void *data);
/* Renames the complete files to their names. */
weft_status_code weft_tensors_writer_finish(weft_tensors_writer *writer);

/* ---- videos and images ----------------------------------------------------------------------- */

/* Decodes the frames of a video, or an image, one at a time. Frames are upright, with square pixels and BT.709 colours. */
typedef struct weft_video_reader weft_video_reader;

typedef struct weft_video_read_options {
    size_t size;
    int64_t width, height; /* size of the frames; 0: the display size */
    int cover;             /* 1: keep the aspect and cut the centre; 0: stretch */
    int threads;           /* decoder threads; 0: 1 */
} weft_video_read_options;
/* `options` NULL: defaults. WEFT_E_FORMAT: not a video; WEFT_E_UNSUPPORTED: no decoder. Close with
 * weft_video_reader_close. */
weft_status_code weft_video_open(const char *path, const weft_video_read_options *options,
                                 weft_video_reader **reader);
void weft_video_reader_close(weft_video_reader *reader);

typedef struct weft_video_description {
    size_t size;
    int64_t width, height;    /* display size */
    double frames_per_second; /* average; 0: unknown */
    double seconds;           /* the container's value; 0: unknown */
    int64_t frames;           /* the container's value, may be wrong; 0: unknown */
    int has_audio, hdr, interlaced;
} weft_video_description;
weft_status_code weft_video_describe(const weft_video_reader *reader,
                                     weft_video_description *description);

typedef struct weft_video_image {
    size_t size;
    int64_t index;  /* number of the frame, from 0 */
    double seconds; /* presentation time */
    int64_t width, height;
    const uint8_t *rgb; /* [height, width, 3]; valid until the next call on the reader */
    int64_t stride;     /* bytes between rows */
    int damaged;        /* 1: the decoder concealed errors */
} weft_video_image;
/* Decodes the next frame. *got 0: the end. */
weft_status_code weft_video_read(weft_video_reader *reader, weft_video_image *image, int *got);
/* Makes the last frame that begins at or before `seconds` the next one. */
weft_status_code weft_video_reader_seek_time(weft_video_reader *reader, double seconds);

/* Writes .mp4 (H.264), .webm (VP9), .gif, or one frame as .png, by the extension of the path. */
typedef struct weft_video_writer weft_video_writer;

typedef struct weft_video_write_options {
    size_t size;
    int64_t width, height;
    double frames_per_second;
    int quality; /* CRF of mp4 and webm, lower is better; 0: 18 for H.264 */
    int threads; /* encoder threads; 0: 1 */
} weft_video_write_options;
/* Writes to a temporary file next to `path`. Close with weft_video_writer_close, which deletes an
 * unfinished file. */
weft_status_code weft_video_create(const char *path, const weft_video_write_options *options,
                                   weft_video_writer **writer);
/* A frame, u8 [height, width, 3]; `stride` is the bytes between rows. */
weft_status_code weft_video_writer_rgb(weft_video_writer *writer, const uint8_t *rgb,
                                       int64_t stride);
/* Completes the file and renames it to its path. */
weft_status_code weft_video_writer_finish(weft_video_writer *writer);
void weft_video_writer_close(weft_video_writer *writer);

/* u8 [frames, height, width, 3] from floats in [-1,1] of the same shape, or [3, frames, height,
 * width] with `channels_first`. Clamps; NaN becomes 0. */
void weft_clip_to_u8(const float *clip, int64_t frames, int64_t height, int64_t width,
                     bool channels_first, uint8_t *rgb);

typedef struct weft_clip_options {
    size_t size;
    int64_t frames, height, width;
    double frames_per_second; /* frame rate of the clip; 0: every frame of the video */
    double start_seconds;
    int threads; /* decoder threads; 0: 1 */
} weft_clip_options;
/* Reads a clip as floats in [-1,1], values[frames, height, width, 3], scaled to cover the size and
 * cut at the centre. WEFT_E_SHAPE: the video has fewer frames. */
weft_status_code weft_clip_load(const char *path, const weft_clip_options *options, float *values);

/* ---- training batches ------------------------------------------------------------------------ */

typedef struct weft_shard_options {
    size_t size;
    double heldout;      /* share of clips kept from training, 0 to 1 */
    int64_t max_samples; /* limit of a shard; 0: 1000 */
    int64_t max_bytes;   /* limit of a shard; 0: 256 MiB */
    int64_t seed;        /* seed of the split and the order */
} weft_shard_options;
/* Writes <in>/clips/<id>.mp4 with <in>/metas/<id>.json ({"caption", "frames", "fps", "width",
 * "height"}) to WebDataset shards in `out`. The same clips give the same bytes. `options` NULL:
 * defaults. *written (may be NULL): number of clips in the shards. */
weft_status_code weft_shards_write(const char *in, const char *out,
                                   const weft_shard_options *options, int64_t *written);

/* Batches of clips from shards, decoded ahead by threads of the loader. The order depends on seed
 * and step only, and each sample comes once per epoch. */
typedef struct weft_batches weft_batches;

typedef struct weft_clip_size {
    int64_t batch; /* clips of a batch, over all ranks */
    int64_t frames, height, width;
} weft_clip_size;
typedef struct weft_batch_options {
    size_t size;
    const char *split;          /* shards whose names begin with "<split>-"; NULL: all */
    const weft_clip_size *clip; /* [clip_sizes]; each clip is used in the size that fits it */
    int64_t clip_sizes;
    double frames_per_second; /* 0: each video's own */
    int64_t seed;
    int threads;            /* 0: 1 */
    int64_t prefetch;       /* batches decoded ahead; 0: 2 */
    double caption_dropout; /* share of captions replaced by "", 0 to 1 */
    int random_crop;        /* 1: random position in space and time; 0: centre and start */
    int verify;             /* 1: compare samples with their checksums */
    int rank, ranks;        /* this rank's even share of each batch; ranks 0: 1 */
} weft_batch_options;
/* `shards`: a folder of shards, a shard, or a pattern with {000..012}. Close with
 * weft_batches_close. */
weft_status_code weft_batches_open(const char *shards, const weft_batch_options *options,
                                   weft_batches **batches);
void weft_batches_close(weft_batches *batches);

/* A batch of this rank. Valid until the next call. */
typedef struct weft_batch_view {
    size_t size;
    int64_t step;               /* number of the batch, from 0 */
    int64_t clip_size;          /* index of its size in the options */
    int64_t count;              /* clips of this rank */
    const float *video;         /* (count, frames, height, width, 3) in [-1,1] */
    const char *const *caption; /* [count]; "": none or dropped */
    const uint64_t *id;         /* [count] of the samples */
} weft_batch_view;
/* Waits for the next batch. Epochs follow each other without an end. */
weft_status_code weft_batches_next(weft_batches *batches, weft_batch_view *batch);
/* The position as JSON (heap), and its restoration with the same shards, sizes and seed. */
weft_status_code weft_batches_save(const weft_batches *batches, char **json);
weft_status_code weft_batches_restore(weft_batches *batches, const char *json);

#ifdef __cplusplus
}
#endif

#endif
