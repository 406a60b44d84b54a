#include "train/config/data_config.h"

#include "data/loader_packing.h"

#include <string.h>

/* `...`: the maximum, then further members. */
#define I64(type, field, name, fallback, unit, help, low, ...)                                     \
    {                                                                                              \
        name, WEFT_KEY_I64, offsetof(type, field), fallback, unit, help, .min = low,               \
                                                                         .max = __VA_ARGS__        \
    }

static const char *const embedding_names[] = {"cached", "step", NULL};
static const char *const samples_names[] = {"latents", "pixels", NULL};
static const weft_key data_keys[] = {
    {"path", WEFT_KEY_STRING, offsetof(weft_run_data, path), NULL, "",
     "data shards or videos: a folder, s3://BUCKET/PREFIX, https://HOST/PATH or a pattern with "
     "{000..012} of shards; or a list of sources",
     .list = "sources"},
    {"sources", WEFT_KEY_SECTION_LIST, offsetof(weft_run_data, sources),
     .section = &weft_data_source_section},
    {"blend", WEFT_KEY_ENUM, offsetof(weft_run_data, blend), "exact", "",
     "use of the weights of sources; exact: every epoch has the same number of samples of a "
     "source, sampled: the source of every sample is drawn",
     .choices = weft_blend_names},
    {"split", WEFT_KEY_STRING, offsetof(weft_run_data, split), "train", "",
     "start of the names of the data shards to read; empty: all"},
    {"clip_seconds", WEFT_KEY_F64, offsetof(weft_run_data, clip_seconds), "0", "s",
     "length of the clips into which videos without shards are divided, each a sample. 0 "
     "(default): a video is one sample",
     .min = 0, .max = 1e6},
    {"fps", WEFT_KEY_F64, offsetof(weft_run_data, fps), "0", "frames/s",
     "frame rate at which clips are sampled; 0: every frame", .min = 0, .max = 1000},
    I64(weft_run_data, threads, "decode_threads", "1", "", "decoding threads of each rank", 1, 256,
        .earlier = "threads"),
    I64(weft_run_data, prefetch, "prefetch_batches", "4", "batches",
        "batches that are decoded in advance", 1, 1024, .earlier = "prefetch"),
    {"random_temporal_crop", WEFT_KEY_BOOL, offsetof(weft_run_data, random_start), "true", "",
     "start at a random frame of a longer clip, for the autoencoder; false: at the first "
     "frame",
     .earlier = "random_start"},
    {"random_crop", WEFT_KEY_BOOL, offsetof(weft_run_data, random_crop), "false", "",
     "crop at a random position if the aspect differs, for the autoencoder; false: at the "
     "centre"},
    I64(weft_run_data, shuffle, "shuffle_buffer", "65536", "samples",
        "size of the shuffle buffer; data shards are read in random order. A set of at most "
        "this size is shuffled as a whole. 0: every set is",
        0, 1e12, .earlier = "shuffle"),
    {"verify_checksums", WEFT_KEY_BOOL, offsetof(weft_run_data, verify), "true", "",
     "verify samples with the checksums in the indexes of the data shards", .earlier = "verify"},
    {"latents", WEFT_KEY_STRING, offsetof(weft_run_data, latents), "", "",
     "folder or s3:// prefix of the latent cache, which runs may share; empty: <out>/latents"},
    {"text_embeddings", WEFT_KEY_ENUM, offsetof(weft_run_data, embeddings), "cached", "",
     "embeddings of frozen text encoders; cached with the latents, or computed in every "
     "step, which keeps the encoders in memory. Results are identical",
     .choices = embedding_names, .earlier = "embeddings", .also_values = "online=step"},
    {"input", WEFT_KEY_ENUM, offsetof(weft_run_data, samples_from), "latents", "",
     "samples of a transformer; latents from the cache, which all ranks fill before a "
     "training stage, or pixels, encoded in each step with parallel.cascades",
     .choices = samples_names, .earlier = "samples_from"},
    {"group_reads", WEFT_KEY_BOOL, offsetof(weft_run_data, group_reads), "false", "",
     "ranks that need the same samples (tp, cp, pp) each read a part and exchange the parts, for "
     "storage that is slower than the network; false: each reads all"},
    {"packing", WEFT_KEY_SECTION, offsetof(weft_run_data, packing),
     .section = &weft_row_packing_section},
};
const weft_section weft_run_data_section = {
    "data", "data shards, frame rate, decoding, latent cache", sizeof(weft_run_data), data_keys,
    WEFT_COUNT(data_keys)};

weft_status weft_run_data_check(const weft_run_data *data, const char *path)
{
    if (data->sources.count && data->path[0])
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.file = path, .key = "data.sources"),
                          "data.path and data.sources are both given. Write one list of all "
                          "sources, as in data: {path: [{name: web, path: %s}, ...]}.",
                          data->path);
    return weft_data_sources_check(&data->sources, path, "data.sources");
}

weft_status weft_run_data_open(const weft_run_data *data, weft_dataset **dataset)
{
    const weft_dataset_options options = {.split = data->split[0] ? data->split : NULL,
                                          .clip_seconds = data->clip_seconds};
    return data->sources.count ? weft_dataset_open_sources(&data->sources, &options, dataset)
                               : weft_dataset_open_with(data->path, &options, dataset);
}

const char *weft_run_data_first(const weft_run_data *data, const char **split)
{
    const weft_data_source *first = data->sources.item;
    *split = data->sources.count && first->split[0] ? first->split : data->split;
    if (!strcmp(*split, "*"))
        *split = "";
    return data->sources.count ? first->path : data->path;
}
