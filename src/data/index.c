#include "data/index.h"

#include "base/config.h"
#include "base/log.h"
#include "data/id_table.h"
#include "data/index_restore.h"
#include "format/tar/tar.h"
#include "format/tar/tar_read.h"
#include "format/tensors/npy.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* ---- samples ------------------------------------------------------------------------------- */

bool weft_webdataset_split(const char *name, int64_t *key_len, const char **suffix)
{
    const char *base = weft_path_base(name);
    const char *dot = strchr(base, '.');
    const size_t len = strlen(base);
    if (!*base || !dot || dot == base ||
        (len > 4 && !strncmp(base, "__", 2) && !strcmp(base + len - 2, "__")))
        return false;
    *key_len = dot - name;
    *suffix = dot + 1;
    return true;
}

const weft_part_data *weft_sample_part(const weft_sample *sample, const char *suffix)
{
    for (int i = 0; i < sample->part_count; i++)
        if (!strcmp(sample->part[i].suffix, suffix))
            return &sample->part[i];
    return NULL;
}

const weft_part_data *weft_sample_video(const weft_sample *sample)
{
    static const char *const suffixes[] = {"mp4", "webm", "mkv", "mov",  "avi",
                                           "ogv", "png",  "jpg", "jpeg", "webp"};
    for (int i = 0; i < WEFT_COUNT(suffixes); i++) {
        const weft_part_data *p = weft_sample_part(sample, suffixes[i]);
        if (p)
            return p;
    }
    return NULL;
}

/* Reads a number by the name that curation writes, else by the name of other tools; 0 without both.
 */
static double number(const json_t *json, const char *key, const char *other)
{
    const json_t *value = json_object_get(json, key);
    const double n = json_number_value(value ? value : json_object_get(json, other));
    return n >= 0 && n <= INT32_MAX ? n : 0; /* an impossible value counts as missing */
}

int64_t weft_metadata_frames(const json_t *meta)
{
    return (int64_t)number(meta, "num_frames", "frames");
}

const char *weft_metadata_caption(const json_t *meta, const char **wrong)
{
    const json_t *caption = json_object_get(meta, "caption");
    *wrong = NULL;
    if (caption && !json_is_string(caption) && !json_is_null(caption))
        *wrong = json_is_number(caption)   ? "is a number"
                 : json_is_array(caption)  ? "is a list"
                 : json_is_object(caption) ? "is an object"
                                           : "is true or false";
    return json_string_value(caption);
}

void weft_sample_set_metadata(weft_sample *s, const json_t *meta)
{
    const json_t *damaged = json_object_get(meta, "damaged");
    s->frames = (int32_t)weft_metadata_frames(meta);
    s->width = (int32_t)number(meta, "width", "width");
    s->height = (int32_t)number(meta, "height", "height");
    s->fps = number(meta, "framerate", "fps");
    s->damaged = json_is_true(damaged) || json_number_value(damaged) > 0;
}

void weft_sample_set_info(weft_sample *s, const weft_video_info *info)
{
    const double frames =
        info->frames > 0 ? (double)info->frames : floor(info->seconds * info->fps + 0.5);
    s->width = (int32_t)info->width;
    s->height = (int32_t)info->height;
    s->fps = info->fps;
    s->frames = frames < 1 ? 1 : frames > INT32_MAX ? INT32_MAX : (int32_t)frames;
}

int64_t weft_caption_clean(char *text, int64_t bytes)
{
    if (bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) {
        bytes -= 3;
        memmove(text, text + 3, (size_t)bytes);
    }
    for (int64_t i = 0; i < bytes; i++)
        if (!text[i])
            text[i] = ' ';
    while (bytes > 0 && isspace((unsigned char)text[bytes - 1]))
        bytes--;
    return bytes;
}

/* ---- as stored ----------------------------------------------------------------------------- */

/* Little endian, each struct a multiple of 8 bytes; places in the text are byte offsets of strings
 * that end with a NUL. */
typedef struct stored_header {
    char magic[8];
    int64_t bytes; /* size of the shard */
    uint64_t stamp, sum;
    int64_t samples, parts, shapes, text; /* counts; text in bytes, a multiple of 8 */
    int64_t damage;                       /* offset in the text; -1: whole */
    uint64_t check;                       /* XXH3 of all else */
} stored_header;

enum { FLAG_CAPTIONED = 1, FLAG_DAMAGED = 2, FLAG_UNREADABLE = 4 };

typedef struct stored_sample {
    double fps;
    uint32_t key;
    int32_t frames, width, height;
    uint8_t parts, flags, zero[6];
} stored_sample;

typedef struct stored_part {
    int64_t at, bytes;
    uint64_t sum;
    uint32_t suffix;
    int32_t shape; /* -1: none */
} stored_part;

static const char magic[8] = {'w', 'e', 'f', 't', 'i', 'd', 'x', '1'};

static uint64_t check_of(const stored_header *header, const void *rest, int64_t bytes)
{
    stored_header h = *header;
    h.check = XXH3_64bits(rest, (size_t)bytes);
    return XXH3_64bits(&h, sizeof h);
}

/* Returns the offset of a string in the text section and adds the string if it is new. Strings with
 * few distinct values (suffixes) are looked up first. */
static uint32_t put_text(weft_buf *text, const char *string, int64_t length)
{
    const int64_t at = text->len;
    weft_buf_append(text, string, length);
    weft_buf_append(text, "", 1);
    return (uint32_t)at;
}

typedef struct suffix_table {
    const char *name[64];
    uint32_t offset[64];
    int count;
} suffix_table;

static uint32_t put_suffix(suffix_table *table, weft_buf *text, const char *suffix)
{
    for (int i = 0; i < table->count; i++)
        if (!strcmp(table->name[i], suffix))
            return table->offset[i];
    const uint32_t offset = put_text(text, suffix, (int64_t)strlen(suffix));
    if (table->count < WEFT_COUNT(table->name)) {
        table->name[table->count] = suffix;
        table->offset[table->count++] = offset;
    }
    return offset;
}

void weft_index_encode(const weft_index *index, weft_buf *out)
{
    weft_buf parts = {0}, shapes = {0}, text = {0};
    suffix_table suffixes = {0};
    stored_header h = {.bytes = index->facts.bytes,
                       .stamp = index->facts.stamp,
                       .sum = index->sum,
                       .samples = index->count,
                       .parts = index->parts,
                       .damage = -1};
    memcpy(h.magic, magic, sizeof magic);
    const int64_t start = out->len;
    weft_buf_append(out, (const char *)&h, sizeof h);
    for (int64_t i = 0; i < index->count; i++) {
        const weft_sample *s = &index->sample[i];
        const stored_sample stored = {.fps = s->fps,
                                      .key = put_text(&text, s->key, (int64_t)strlen(s->key)),
                                      .frames = s->frames,
                                      .width = s->width,
                                      .height = s->height,
                                      .parts = s->part_count,
                                      .flags = (uint8_t)(s->captioned * FLAG_CAPTIONED |
                                                         s->damaged * FLAG_DAMAGED |
                                                         s->unreadable * FLAG_UNREADABLE)};
        weft_buf_append(out, (const char *)&stored, sizeof stored);
        for (int k = 0; k < s->part_count; k++) {
            const weft_part_data *p = &s->part[k];
            const stored_part part = {.at = p->at,
                                      .bytes = p->bytes,
                                      .sum = p->sum,
                                      .suffix = put_suffix(&suffixes, &text, p->suffix),
                                      .shape = p->shape ? (int32_t)h.shapes++ : -1};
            weft_buf_append(&parts, (const char *)&part, sizeof part);
            if (p->shape)
                weft_buf_append(&shapes, (const char *)p->shape, sizeof *p->shape);
        }
    }
    if (index->damage)
        h.damage = put_text(&text, index->damage, (int64_t)strlen(index->damage));
    do
        weft_buf_append(&text, "", 1);
    while (text.len % 8 && !text.failed);
    h.text = text.len;
    if (parts.len)
        weft_buf_append(out, parts.data, parts.len);
    if (shapes.len)
        weft_buf_append(out, shapes.data, shapes.len);
    if (text.len)
        weft_buf_append(out, text.data, text.len);
    out->failed = out->failed || parts.failed || shapes.failed || text.failed;
    if (!out->failed) {
        h.check = check_of(&h, out->data + start + sizeof h, out->len - start - (int64_t)sizeof h);
        memcpy(out->data + start, &h, sizeof h);
    }
    weft_buf_free(&parts);
    weft_buf_free(&shapes);
    weft_buf_free(&text);
}

void weft_index_seal(void *data, int64_t bytes)
{
    stored_header h;
    if (bytes < (int64_t)sizeof h)
        return;
    memcpy(&h, data, sizeof h);
    h.check = check_of(&h, (char *)data + sizeof h, bytes - (int64_t)sizeof h);
    memcpy(data, &h, sizeof h);
}

/* The stored lists, and the arena's piece that they are turned into. */
typedef struct decoding {
    stored_header h;
    const stored_sample *sample;
    const stored_part *part;
    const weft_part_shape *shape;
    const char *text;
    weft_sample *to_sample;
    weft_part_data *to_part;
    weft_part_shape *to_shape;
    char *to_text;
} decoding;

static bool sizes_fit(const stored_header *h, int64_t bytes)
{
    const int64_t limit = INT64_C(1) << 40;
    if (h->samples < 0 || h->parts < 0 || h->shapes < 0 || h->text < 8 || h->samples > limit ||
        h->parts > limit || h->shapes > h->parts || h->text > limit || h->text > UINT32_MAX ||
        h->damage >= h->text || h->damage < -1 || h->bytes < 0)
        return false;
    return (int64_t)sizeof *h + h->samples * (int64_t)sizeof(stored_sample) +
               h->parts * (int64_t)sizeof(stored_part) +
               h->shapes * (int64_t)sizeof(weft_part_shape) + h->text ==
           bytes;
}

/* One piece of the arena holds all of a shard: samples, parts, shapes, text. */
static bool reserve(decoding *d, weft_arena *arena)
{
    const stored_header *h = &d->h;
    char *block =
        weft_arena_alloc(arena, h->samples * (int64_t)sizeof(weft_sample) +
                                    h->parts * (int64_t)sizeof(weft_part_data) +
                                    h->shapes * (int64_t)sizeof(weft_part_shape) + h->text);
    if (!block)
        return false;
    d->to_sample = (weft_sample *)(void *)block;
    d->to_part = (weft_part_data *)(void *)(d->to_sample + h->samples);
    d->to_shape = (weft_part_shape *)(void *)(d->to_part + h->parts);
    d->to_text = (char *)(d->to_shape + h->shapes);
    if (h->shapes)
        memcpy(d->to_shape, d->shape, (size_t)h->shapes * sizeof *d->shape);
    memcpy(d->to_text, d->text, (size_t)h->text);
    return true;
}

static bool decode_lists(const decoding *d)
{
    const stored_header *h = &d->h;
    int64_t at = 0;
    for (int64_t i = 0; i < h->samples; i++) {
        const stored_sample *s = &d->sample[i];
        if (s->key >= h->text || s->parts > WEFT_SAMPLE_MAX_PARTS || s->parts > h->parts - at)
            return false;
        weft_sample *to = &d->to_sample[i];
        *to = (weft_sample){.key = d->to_text + s->key,
                            .part = d->to_part + at,
                            .fps = s->fps,
                            .frames = s->frames,
                            .width = s->width,
                            .height = s->height,
                            .part_count = s->parts,
                            .captioned = s->flags & FLAG_CAPTIONED,
                            .damaged = s->flags & FLAG_DAMAGED,
                            .unreadable = s->flags & FLAG_UNREADABLE};
        to->id = XXH3_64bits(to->key, strlen(to->key));
        for (int k = 0; k < s->parts; k++, at++) {
            const stored_part *p = &d->part[at];
            if (p->at < 0 || p->bytes < 0 || p->at > h->bytes || p->bytes > h->bytes - p->at ||
                p->suffix >= h->text || p->shape < -1 || p->shape >= h->shapes)
                return false;
            d->to_part[at] =
                (weft_part_data){.suffix = d->to_text + p->suffix,
                                 .at = p->at,
                                 .bytes = p->bytes,
                                 .sum = p->sum,
                                 .shape = p->shape >= 0 ? &d->to_shape[p->shape] : NULL};
        }
    }
    return at == h->parts;
}

weft_status weft_index_decode(const void *data, int64_t bytes, const char *where, weft_arena *arena,
                              weft_index *index)
{
    decoding d;
    const char *at = data;
    if (bytes < (int64_t)sizeof d.h)
        return weft_error(WEFT_MSG_SHARD_DAMAGED, WEFT_AT(.file = where),
                          "the file has %" PRId64 " bytes, too few for the index of a shard",
                          bytes);
    memcpy(&d.h, data, sizeof d.h);
    if (memcmp(d.h.magic, magic, sizeof magic) != 0 || !sizes_fit(&d.h, bytes) ||
        d.h.check != check_of(&d.h, at + sizeof d.h, bytes - (int64_t)sizeof d.h))
        return weft_error(WEFT_MSG_SHARD_DAMAGED, WEFT_AT(.file = where),
                          "the file is not the index of a shard, or it is damaged");
    d.sample = (const void *)(at + sizeof d.h);
    d.part = (const void *)(d.sample + d.h.samples);
    d.shape = (const void *)(d.part + d.h.parts);
    d.text = (const char *)(d.shape + d.h.shapes);
    if (d.text[d.h.text - 1] != 0)
        return weft_error(WEFT_MSG_SHARD_DAMAGED, WEFT_AT(.file = where),
                          "the text of the index does not end");
    WEFT_TRY(WEFT_ALLOCATED(reserve(&d, arena), "%s", where));
    if (!decode_lists(&d))
        return weft_error(WEFT_MSG_SHARD_DAMAGED, WEFT_AT(.file = where),
                          "the index refers to bytes outside of the shard or of itself");
    *index = (weft_index){.facts = {.bytes = d.h.bytes, .stamp = d.h.stamp},
                          .sum = d.h.sum,
                          .sample = d.to_sample,
                          .count = d.h.samples,
                          .parts = d.h.parts,
                          .damage = d.h.damage >= 0 ? d.to_text + d.h.damage : NULL};
    return WEFT_OK;
}

/* ---- made from the shard ------------------------------------------------------------------- */

enum { META_LIMIT = 1 << 24 };

typedef struct making {
    weft_storage *storage;
    const char *shard;
    char *path;        /* path in messages */
    weft_arena *names; /* members, keys, suffixes, shapes, until the index is encoded */
    weft_sample *sample;
    int64_t count, capacity;
    weft_part_data *part; /* parts of all samples, contiguous */
    int64_t parts, part_capacity;
    char *bytes; /* content of the current part */
    int64_t byte_capacity;
} making;

static weft_status read_shard(void *self, int64_t at, int64_t bytes, void *to)
{
    const making *m = self;
    return weft_storage_read(m->storage, m->shard, at, bytes, to);
}

static char *lower_copy(weft_arena *arena, const char *text)
{
    char *copy = weft_arena_strdup(arena, text);
    for (char *p = copy; p && *p; p++)
        *p = (char)tolower((unsigned char)*p);
    return copy;
}

/* Reads the part into m->bytes and appends a NUL. */
static weft_status read_part(making *m, const weft_part_data *p)
{
    if (p->bytes + 1 > m->byte_capacity) {
        char *larger = weft_realloc(m->bytes, p->bytes + 1);
        WEFT_TRY(WEFT_ALLOCATED(larger, "%s", m->path));
        m->bytes = larger;
        m->byte_capacity = p->bytes + 1;
    }
    m->bytes[p->bytes] = 0;
    return weft_storage_read(m->storage, m->shard, p->at, p->bytes, m->bytes);
}

static weft_status add_part(making *m, weft_sample *s, const char *suffix,
                            const weft_tar_member *member)
{
    const char *own = lower_copy(m->names, suffix);
    WEFT_TRY(WEFT_ALLOCATED(own, "%s", m->path));
    for (int i = 0; i < s->part_count; i++)
        if (!strcmp(m->part[m->parts - s->part_count + i].suffix, own))
            return weft_error(WEFT_MSG_SHARD_DAMAGED, WEFT_AT(.file = m->path, .key = s->key),
                              "the sample has the suffix .%s twice", own);
    if (s->part_count == WEFT_SAMPLE_MAX_PARTS)
        return weft_error(WEFT_MSG_SHARD_DAMAGED, WEFT_AT(.file = m->path, .key = s->key),
                          "the sample has more than %d parts", WEFT_SAMPLE_MAX_PARTS);
    WEFT_TRY(weft_grow((void **)&m->part, m->parts, &m->part_capacity, sizeof *m->part));
    m->part[m->parts++] = (weft_part_data){.suffix = own, .at = member->at, .bytes = member->bytes};
    s->part_count++;
    return WEFT_OK;
}

static weft_status group(making *m, const weft_tar_index *tar)
{
    for (int64_t i = 0; i < tar->count; i++) {
        const weft_tar_member *member = &tar->member[i];
        int64_t key_len;
        const char *suffix;
        if (!weft_webdataset_split(member->name, &key_len, &suffix))
            continue;
        weft_sample *last = m->count ? &m->sample[m->count - 1] : NULL;
        if (!last || (int64_t)strlen(last->key) != key_len ||
            strncmp(last->key, member->name, (size_t)key_len) != 0) {
            WEFT_TRY(weft_grow((void **)&m->sample, m->count, &m->capacity, sizeof *m->sample));
            last = &m->sample[m->count++];
            *last = (weft_sample){
                .key = weft_arena_printf(m->names, "%.*s", (int)key_len, member->name)};
            WEFT_TRY(WEFT_ALLOCATED(last->key, "%s", m->path));
        }
        WEFT_TRY(add_part(m, last, suffix, member));
    }
    return WEFT_OK;
}

/* Reads the .json of a sample; a sample with a damaged .json keeps its other parts. */
static weft_status read_meta(making *m, weft_sample *s, bool *captioned)
{
    const weft_part_data *meta = weft_sample_part(s, "json");
    json_t *json = NULL;
    *captioned = false;
    if (!meta)
        return WEFT_OK;
    if (meta->bytes > META_LIMIT) {
        weft_warning(WEFT_MSG_SHARD_PARTLY_USED,
                     WEFT_AT(.file = m->path, .key = s->key, WEFT_NUMBER(meta->bytes)),
                     "the .json of the sample has %" PRId64
                     " bytes, more than %d; its sizes are unknown",
                     meta->bytes, META_LIMIT);
        return WEFT_OK;
    }
    WEFT_TRY(read_part(m, meta));
    if (weft_json_parse(m->bytes, meta->bytes, s->key, &json) != WEFT_OK) {
        weft_warning(WEFT_MSG_SHARD_PARTLY_USED, WEFT_AT(.file = m->path),
                     "the sizes of a sample are unknown: %s", weft_error_message());
        return WEFT_OK;
    }
    const char *wrong, *caption = weft_metadata_caption(json, &wrong);
    if (wrong && !weft_sample_part(s, "txt"))
        weft_warning(WEFT_MSG_CAPTION_INVALID, WEFT_AT(.file = m->path, .key = s->key),
                     "the caption %s; the sample trains without text", wrong);
    *captioned = caption && *caption;
    weft_sample_set_metadata(s, json);
    json_decref(json);
    return WEFT_OK;
}

/* Reads properties that the .json lacks from the video's container. */
static weft_status probe_video(making *m, weft_sample *s)
{
    const weft_part_data *video = weft_sample_video(s);
    weft_video_reader *reader;
    if (!video || (s->frames > 0 && s->width > 0 && s->height > 0))
        return WEFT_OK;
    WEFT_TRY(read_part(m, video));
    if (weft_video_reader_open_memory(m->bytes, video->bytes, s->key, NULL, &reader) != WEFT_OK) {
        weft_warning(WEFT_MSG_SAMPLE_SKIPPED, WEFT_AT(.file = m->path), "a sample is skipped: %s",
                     weft_error_message());
        s->unreadable = true;
        return WEFT_OK;
    }
    weft_sample_set_info(s, weft_video_reader_info(reader));
    weft_video_reader_close(reader);
    return WEFT_OK;
}

static weft_status probe_arrays(making *m, weft_part_data *part, int count, const char *key)
{
    for (int i = 0; i < count; i++) {
        const size_t len = strlen(part[i].suffix);
        weft_npy npy;
        if (len < 3 || strcmp(part[i].suffix + len - 3, "npy") != 0)
            continue;
        WEFT_TRY(read_part(m, &part[i]));
        if (weft_npy_parse(m->bytes, part[i].bytes, key, &npy) != WEFT_OK) {
            weft_warning(WEFT_MSG_SAMPLE_SKIPPED, WEFT_AT(.file = m->path),
                         "a sample is skipped: %s", weft_error_message());
            continue;
        }
        if (npy.rank > WEFT_PART_MAX_RANK)
            continue;
        weft_part_shape *shape;
        WEFT_TRY(WEFT_ARENA_NEW(m->names, shape, 1, "%s", m->path));
        *shape = (weft_part_shape){.dtype = (int32_t)npy.dtype, .rank = npy.rank};
        for (int d = 0; d < npy.rank; d++)
            shape->dim[d] = (int32_t)(npy.dim[d] > INT32_MAX ? INT32_MAX : npy.dim[d]);
        part[i].shape = shape;
    }
    return WEFT_OK;
}

static weft_status read_facts(making *m, weft_sample *s, weft_part_data *parts)
{
    bool in_meta;
    s->part = parts;
    WEFT_TRY(read_meta(m, s, &in_meta));
    WEFT_TRY(probe_video(m, s));
    WEFT_TRY(probe_arrays(m, parts, s->part_count, s->key));
    const weft_part_data *text = weft_sample_part(s, "txt");
    s->captioned = in_meta;
    if (text) {
        WEFT_TRY(read_part(m, text));
        s->captioned = weft_caption_clean(m->bytes, text->bytes) > 0;
    }
    return WEFT_OK;
}

/* Finds the samples of the shard. A file that is not a tar archive has none, and a damage. */
static weft_status find_samples(making *m, const weft_tar_input *input, weft_tar_index *tar)
{
    const weft_status_code status = weft_tar_open(input, m->path, m->names, tar);
    if (status == WEFT_E_FORMAT) {
        tar->damage = weft_arena_strdup(m->names, weft_error_message());
        WEFT_TRY(WEFT_ALLOCATED(tar->damage, "%s", m->path));
    } else {
        WEFT_TRY(status);
    }
    WEFT_TRY(group(m, tar));
    int64_t first = 0;
    for (int64_t i = 0; i < m->count; i++) {
        WEFT_TRY(read_facts(m, &m->sample[i], m->part + first));
        first += m->sample[i].part_count;
    }
    return WEFT_OK;
}

static weft_status make_lists(making *m, const weft_storage_facts *facts, weft_index *index)
{
    const weft_tar_input input = {.self = m, .bytes = facts->bytes, .read = read_shard};
    weft_tar_index tar = {0};
    const weft_status_code status = find_samples(m, &input, &tar);
    if (tar.links)
        weft_warning(
            WEFT_MSG_SHARD_PARTLY_USED,
            WEFT_AT(.file = m->path, .value = tar.link, WEFT_NUMBER(tar.links)),
            "%" PRId64
            " link%s in the shard: links are not read; the first is \"%s\". Write the files "
            "themselves, e.g. with tar --dereference --hard-dereference",
            tar.links, weft_plural(tar.links), tar.link ? tar.link : "");
    const char *damage = tar.damage; /* lives in m->names */
    weft_tar_close(&tar);
    *index = (weft_index){.facts = *facts,
                          .sample = m->sample,
                          .count = m->count,
                          .parts = m->parts,
                          .damage = damage};
    return status;
}

weft_status weft_index_make(weft_storage *storage, const char *shard, weft_arena *arena,
                            weft_index *index)
{
    weft_storage_facts facts;
    weft_index lists;
    weft_buf stored = {0};
    WEFT_TRY(weft_storage_facts_of(storage, shard, &facts));
    making m = {.storage = storage, .shard = shard, .names = weft_arena_create()};
    m.path = weft_path_join(weft_storage_root(storage), shard);
    weft_status_code status;
    WEFT_GO(WEFT_ALLOCATED(m.names && m.path, "%s", shard));
    WEFT_GO(make_lists(&m, &facts, &lists));
    weft_index_encode(&lists, &stored);
    WEFT_GO(weft_buf_check(&stored));
    WEFT_GO(weft_index_decode(stored.data, stored.len, m.path, arena, index));
out:
    weft_buf_free(&stored);
    weft_arena_free(m.names);
    weft_free(m.sample);
    weft_free(m.part);
    weft_free(m.bytes);
    weft_free(m.path);
    return status;
}

/* ---- the index file ------------------------------------------------------------------------ */

static char *index_name(const char *shard)
{
    weft_buf name = {0};
    weft_buf_printf(&name, "%s.index", shard);
    if (name.failed)
        weft_buf_free(&name);
    return name.data;
}

weft_status weft_index_save(weft_storage *storage, const char *shard, const weft_index *index)
{
    weft_buf stored = {0};
    char *name = index_name(shard);
    weft_index_encode(index, &stored);
    weft_status_code status = WEFT_OK;
    WEFT_GO(name ? weft_buf_check(&stored) : weft_no_memory("%s", shard));
    WEFT_GO(weft_storage_put_hasty(storage, name, stored.data, stored.len));
out:
    weft_buf_free(&stored);
    weft_free(name);
    return status;
}

/* Reads the index file into the buffer. */
static weft_status read_index(weft_storage *storage, const char *name, weft_index_buffer *buffer,
                              int64_t *bytes)
{
    weft_storage_facts facts;
    WEFT_TRY(weft_storage_facts_of(storage, name, &facts));
    if (facts.bytes > buffer->bytes) {
        weft_free(buffer->data);
        buffer->bytes = facts.bytes + facts.bytes / 8; /* shards are about as large as others */
        buffer->data = weft_alloc_aligned(buffer->bytes);
    }
    WEFT_TRY(WEFT_ALLOCATED(buffer->data || !buffer->bytes, "%s", name));
    *bytes = facts.bytes;
    return weft_storage_read(storage, name, 0, facts.bytes, buffer->data);
}

/* Whether the shard has no index (a folder of its name is none), or another process replaced it
 * just now; then it is built. Everything else that prevents its reading is an error: a start
 * without it would read the whole shard, and the checksums would be lost. */
static bool is_absent(weft_status_code status)
{
    static const weft_message_class absent[] = {WEFT_MSG_FILE_NOT_FOUND, WEFT_MSG_FILE_KIND,
                                                WEFT_MSG_FILE_CHANGED};
    for (int i = 0; i < WEFT_COUNT(absent) && status != WEFT_OK; i++)
        if (weft_error_class() == absent[i])
            return true;
    return false;
}

typedef enum stored_index { STORED_NONE, STORED_DAMAGED, STORED_WHOLE } stored_index;

/* Loads the index file. Without a whole one the caller builds it. */
static weft_status load(weft_storage *storage, const char *shard, weft_arena *arena,
                        weft_index_buffer *buffer, weft_index *index, stored_index *found)
{
    char *name = index_name(shard),
         *path = name ? weft_path_join(weft_storage_root(storage), name) : NULL;
    int64_t bytes = 0;
    *found = STORED_NONE;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(path, "%s", shard));
    status = read_index(storage, name, buffer, &bytes);
    if (is_absent(status)) {
        status = WEFT_OK;
        goto out;
    }
    if (status != WEFT_OK && status != WEFT_E_MEMORY && status != WEFT_E_CANCELLED)
        status = weft_error_add(weft_error_at(status, WEFT_AT(.file = path)),
                                "It is the index of a shard. Permit to read it, or remove it");
    WEFT_GO(status);
    status = weft_index_decode(buffer->data, bytes, path, arena, index);
    *found = status == WEFT_OK ? STORED_WHOLE : STORED_DAMAGED;
    if (status == WEFT_E_FORMAT) {
        weft_warn_error(WEFT_MSG_INDEX_REBUILT, "it is rebuilt from the shard");
        status = WEFT_OK;
    }
out:
    weft_free(name);
    weft_free(path);
    return status;
}

void weft_index_set_sums(weft_index *index, const uint64_t *sum, uint64_t shard)
{
    /* the parts of all samples are contiguous in an arena block that the index owns */
    weft_part_data *parts = index->count ? (weft_part_data *)index->sample[0].part : NULL;
    for (int64_t i = 0; i < index->parts; i++)
        parts[i].sum = sum[i];
    index->sum = shard;
}

typedef struct same_sample {
    const weft_index *index;
    const weft_sample *sample;
} same_sample;

static bool is_same_sample(const void *user, int64_t number)
{
    const same_sample *s = user;
    return weft_sample_same(&s->index->sample[number], s->sample);
}

/* Copies checksums of the old index for parts at unchanged offsets. Added or lost members do not
 * affect them. */
static weft_status inherit_checksums(weft_index *index, const weft_index *old)
{
    int64_t inherited = 0;
    weft_id_table table;
    WEFT_TRY(weft_id_table_create(old->count, &table));
    for (int64_t i = 0; i < old->count; i++)
        weft_id_table_put(&table, old->sample[i].id, i);
    for (int64_t i = 0; i < index->count; i++) {
        const weft_sample *a = &index->sample[i];
        const int64_t at =
            weft_id_table_find(&table, a->id, is_same_sample, &(same_sample){old, a});
        if (at < 0) /* a new one */
            continue;
        const weft_sample *b = &old->sample[at];
        weft_part_data *part = (weft_part_data *)a->part; /* owned: in the index's arena */
        for (int k = 0; k < a->part_count; k++)
            for (int m = 0; m < b->part_count; m++)
                if (part[k].at == b->part[m].at && part[k].bytes == b->part[m].bytes &&
                    !strcmp(part[k].suffix, b->part[m].suffix)) {
                    part[k].sum = b->part[m].sum;
                    inherited++;
                }
    }
    if (inherited > 0 && inherited == index->parts && inherited == old->parts)
        index->sum = old->sum;
    weft_id_table_free(&table);
    return WEFT_OK;
}

weft_status weft_index_get(weft_storage *storage, const char *shard, weft_arena *arena,
                           weft_index_buffer *buffer, weft_index *index, bool *made)
{
    weft_storage_facts facts;
    weft_index old;
    stored_index found;
    if (made)
        *made = false;
    WEFT_TRY(weft_storage_facts_of(storage, shard, &facts));
    WEFT_TRY(load(storage, shard, arena, buffer, &old, &found));
    if (found == STORED_WHOLE && old.facts.bytes == facts.bytes && old.facts.stamp == facts.stamp) {
        *index = old;
        return WEFT_OK;
    }
    WEFT_TRY(weft_index_make(storage, shard, arena, index));
    if (found == STORED_WHOLE && (old.facts.bytes == facts.bytes || index->damage))
        WEFT_TRY(inherit_checksums(index, &old));
    if (found == STORED_DAMAGED)
        WEFT_TRY(weft_index_restore(storage, shard, index));
    if (made)
        *made = true;
    if (index->count > 0 && weft_index_save(storage, shard, index) != WEFT_OK)
        weft_debug("%s; every start builds the index again", weft_error_message());
    return WEFT_OK;
}
