#include "fuzz.h"

#include "base/config.h"
#include "base/config_text.h"
#include "base/fs.h"
#include "base/json.h"
#include "data/dataset.h"
#include "format/log/metrics.h"
#include "format/tar/tar.h"
#include "format/tar/tar_read.h"
#include "format/tensors/npy.h"
#include "format/tensors/safetensors.h"
#include "text/tokenizer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int64_t fuzz_taken;

/* Formats that are read by path: the bytes as a file of this process. */
static const char *as_file(const uint8_t *data, size_t size, const char *extension)
{
    static char path[128];
    const char *dir = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(path, sizeof path, "%s/weft-fuzz-%d.%s", dir, (int)getpid(), extension);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size || close(fd) != 0)
        abort();
    return path;
}

/* Every byte must be readable; the sum keeps the compiler from leaving the reads out. */
static volatile uint64_t sink;
static void touch(const uint8_t *data, int64_t bytes)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < bytes; i++)
        sum += data[i];
    sink = sum;
}

int fuzz_safetensors(const uint8_t *data, size_t size)
{
    weft_tensors *tensors;
    const char *path = as_file(data, size, "safetensors");
    if (weft_tensors_open(path, &tensors) == WEFT_OK) {
        fuzz_taken++;
        for (int64_t i = 0; i < weft_tensors_count(tensors); i++) {
            const weft_stored_tensor *t = weft_tensors_at(tensors, i);
            if (weft_tensors_find(tensors, t->name) != t)
                abort();
            float *values = t->count < 1 << 20 ? weft_alloc((t->count + 1) * 4) : NULL;
            if (values)
                weft_tensor_to_f32(t, values);
            weft_free(values);
        }
        weft_tensors_close(tensors);
    }
    unlink(path);
    return 0;
}

/* The bytes of a file determine its reader. */
int fuzz_gguf(const uint8_t *data, size_t size)
{
    return fuzz_safetensors(data, size);
}

int fuzz_torch(const uint8_t *data, size_t size)
{
    return fuzz_safetensors(data, size);
}

int fuzz_tar(const uint8_t *data, size_t size)
{
    /* a copy on the heap, where a sanitizer detects reads past the end of the archive */
    weft_arena *arena = weft_arena_create();
    weft_tar_index index;
    const weft_map map = {.data = data, .bytes = (int64_t)size};
    const weft_tar_input input = weft_tar_memory(&map);
    if (weft_tar_open(&input, "fuzz.tar", arena, &index) == WEFT_OK) {
        for (int64_t i = 0; i < index.count; i++)
            touch(data + index.member[i].at, index.member[i].bytes);
        weft_tar_close(&index);
    }
    weft_arena_free(arena);
    /* read as samples */
    weft_dataset *dataset;
    const char *path = as_file(data, size, "tar");
    char beside[160];
    snprintf(beside, sizeof beside, "%s.index", path);
    if (weft_dataset_open(path, NULL, false, &dataset) == WEFT_OK) {
        weft_part_bytes bytes = {0};
        for (int64_t i = 0; i < weft_dataset_count(dataset); i++) {
            const weft_sample *sample = weft_dataset_at(dataset, i);
            for (int p = 0; p < sample->part_count; p++)
                if (weft_dataset_read(dataset, sample, &sample->part[p], true, &bytes) == WEFT_OK)
                    touch((const uint8_t *)bytes.data, bytes.bytes);
            if (weft_dataset_caption(dataset, sample, true, &bytes) == WEFT_OK)
                touch((const uint8_t *)bytes.data, bytes.bytes);
            touch((const uint8_t *)sample->key, (int64_t)strlen(sample->key));
        }
        weft_free(bytes.data);
        weft_dataset_close(dataset);
    }
    unlink(path);
    unlink(beside);
    return 0;
}

/* A shard's index: what decodes must hold together, and encode to the same bytes. Its checksum is
 * made right first, or nothing would get past it. */
int fuzz_index(const uint8_t *data, size_t size)
{
    weft_arena *arena = weft_arena_create();
    uint8_t *copy = weft_alloc_aligned((int64_t)size + 1);
    weft_index index;
    if (!arena || !copy)
        abort();
    if (size)
        memcpy(copy, data, size);
    weft_index_seal(copy, (int64_t)size);
    if (weft_index_decode(copy, (int64_t)size, "fuzz.index", arena, &index) == WEFT_OK) {
        weft_buf again = {0};
        for (int64_t i = 0; i < index.count; i++) {
            const weft_sample *s = &index.sample[i];
            touch((const uint8_t *)s->key, (int64_t)strlen(s->key));
            for (int p = 0; p < s->part_count; p++) {
                touch((const uint8_t *)s->part[p].suffix, (int64_t)strlen(s->part[p].suffix));
                if (s->part[p].shape)
                    touch((const uint8_t *)s->part[p].shape, sizeof *s->part[p].shape);
            }
        }
        weft_index_encode(&index, &again);
        weft_index twice;
        if (again.failed ||
            weft_index_decode(again.data, again.len, "again", arena, &twice) != WEFT_OK ||
            twice.count != index.count || twice.parts != index.parts)
            abort();
        weft_buf_free(&again);
    }
    weft_free(copy);
    weft_arena_free(arena);
    return 0;
}

int fuzz_npy(const uint8_t *data, size_t size)
{
    weft_npy npy;
    if (weft_npy_parse(data, (int64_t)size, "fuzz.npy", &npy) == WEFT_OK)
        touch(npy.data, npy.count * weft_dtype_bytes(npy.dtype));
    return 0;
}

typedef struct inner {
    int64_t frames;
    double weight;
    const char *label;
} inner;
typedef struct outer {
    int64_t steps;
    double rate;
    bool quick;
    int kind;
    const char *name;
    weft_i64_list sizes;
    weft_f64_list betas;
    weft_string_list words;
    inner one;
    weft_section_list many;
} outer;

static const char *const kinds[] = {"first", "second", NULL};
static const weft_key inner_keys[] = {
    {"frames", WEFT_KEY_I64, offsetof(inner, frames), "1", "frames", "frames", .min = 1, .max = 99},
    {"weight", WEFT_KEY_F64, offsetof(inner, weight), "1", "", "share"},
    {"label", WEFT_KEY_STRING, offsetof(inner, label), "", "", "name"},
};
static const weft_section inner_section = {"inner", "part", sizeof(inner), inner_keys,
                                           WEFT_COUNT(inner_keys)};
static const weft_key outer_keys[] = {
    {"steps", WEFT_KEY_I64, offsetof(outer, steps), "1000", "", "steps", .min = 1, .max = 1e9},
    {"rate", WEFT_KEY_F64, offsetof(outer, rate), "1e-4", "", "rate", .min = 0, .max = 1},
    {"quick", WEFT_KEY_BOOL, offsetof(outer, quick), "false", "", "quick"},
    {"kind", WEFT_KEY_ENUM, offsetof(outer, kind), "first", "", "which", .choices = kinds},
    {"name", WEFT_KEY_STRING, offsetof(outer, name), "x", "", "name"},
    {"sizes", WEFT_KEY_I64_LIST, offsetof(outer, sizes), "[1, 2]", "", "sizes", .min = 0,
     .max = 512},
    {"betas", WEFT_KEY_F64_LIST, offsetof(outer, betas), "[0.9]", "", "decay"},
    {"words", WEFT_KEY_STRING_LIST, offsetof(outer, words), "[]", "", "words"},
    {"one", WEFT_KEY_SECTION, offsetof(outer, one), .section = &inner_section},
    {"many", WEFT_KEY_SECTION_LIST, offsetof(outer, many), .section = &inner_section},
};
static const weft_section outer_section = {"outer", "run", sizeof(outer), outer_keys,
                                           WEFT_COUNT(outer_keys)};

/* The first line, where it has an '=', is an override; the rest is the file. What loads must dump,
 * and the dump must load to the same dump. */
int fuzz_config(const uint8_t *data, size_t size)
{
    weft_arena *arena = weft_arena_create();
    outer config, again;
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    const size_t first = end ? (size_t)(end - data) : 0;
    char *line = weft_alloc((int64_t)first + 1);
    if (!arena || !line)
        abort();
    if (first)
        memcpy(line, data, first);
    const char *const overrides[1] = {line};
    const int count = strchr(line, '=') ? 1 : 0;
    const int64_t skip = count ? (int64_t)first + 1 : 0;
    if (weft_config_parse(arena, (const char *)data + skip, (int64_t)size - skip, "fuzz.yaml",
                          overrides, count, &outer_section, &config) == WEFT_OK) {
        weft_buf dump = {0}, twice = {0};
        weft_config_dump(&outer_section, &config, &dump);
        if (weft_config_parse(arena, dump.data, dump.len, "dump.yaml", NULL, 0, &outer_section,
                              &again) != WEFT_OK) {
            fprintf(stderr, "%s\n%s\n", weft_error_message(), dump.data);
            abort();
        }
        weft_config_dump(&outer_section, &again, &twice);
        if (dump.len != twice.len || memcmp(dump.data, twice.data, (size_t)dump.len) != 0)
            abort();
        weft_buf_free(&dump);
        weft_buf_free(&twice);
    }
    weft_free(line);
    weft_arena_free(arena);
    return 0;
}

/* Metas, manifests, model configs: typed members out of any JSON. */
int fuzz_json(const uint8_t *data, size_t size)
{
    json_t *json;
    if (weft_json_parse((const char *)data, (int64_t)size, "fuzz.json", &json) != WEFT_OK)
        return 0;
    int64_t whole;
    double real;
    bool flag;
    const char *text;
    (void)!weft_json_get_i64(json, "frames", "fuzz.json", &whole);
    (void)!weft_json_get_f64(json, "fps", "fuzz.json", &real);
    (void)!weft_json_get_bool(json, "held_out", "fuzz.json", &flag);
    (void)!weft_json_get_string_or(json, "caption", "fuzz.json", "", &text);
    char *line = weft_json_line(json);
    if (line && strchr(line, '\n'))
        abort(); /* a manifest is one line each */
    weft_free(line);
    json_decref(json);
    return 0;
}

int fuzz_metrics(const uint8_t *data, size_t size)
{
    double *step, *value;
    int64_t count;
    const char *path = as_file(data, size, "jsonl");
    if (weft_metrics_read(path, "loss", &step, &value, &count) == WEFT_OK) {
        weft_free(step);
        weft_free(value);
    }
    unlink(path);
    return 0;
}

/* A tokenizer that was read cuts every text into ids that it has. */
static int tokenizer(const uint8_t *data, size_t size, const char *extension)
{
    weft_tokenizer *t;
    static const char text[] = "ab <s>Ab  12\xc3\xa9'\xff\n";
    const char *path = as_file(data, size, extension);
    if (weft_tokenizer_open(path, &t) == WEFT_OK) {
        fuzz_taken++;
        int32_t *id;
        int64_t count;
        if (weft_tokenizer_encode(t, text, (int64_t)sizeof text - 1, 6, &id, &count, NULL) ==
            WEFT_OK) {
            for (int64_t i = 0; i < count; i++)
                sink += (uint64_t)strlen(weft_tokenizer_piece(t, id[i]));
            weft_free(id);
        }
        weft_tokenizer_close(t);
    }
    unlink(path);
    return 0;
}

int fuzz_tokenizer(const uint8_t *data, size_t size)
{
    return tokenizer(data, size, "json");
}

int fuzz_spiece(const uint8_t *data, size_t size)
{
    return tokenizer(data, size, "model");
}
