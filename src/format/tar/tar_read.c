#include "format/tar/tar_read.h"

#include "base/fs.h"
#include "format/tar/tar.h"
#include "format/tar/tar_header.h"

#include <string.h>

enum { MAX_NAME = 64 << 10 };

/* ---- fields -------------------------------------------------------------------------------- */

/* Octal digits with blanks or NULs around them, or GNU's base 256 with the top bit set. False:
 * neither, or over 2^62. */
static bool read_number(const char *field, int width, int64_t *out)
{
    const unsigned char *f = (const unsigned char *)field;
    int64_t value = 0;
    if (f[0] & 0x80) {
        if (f[0] != 0x80)
            return false; /* negative, or beyond any file */
        for (int i = 1; i < width; i++) {
            if (value >> 54)
                return false;
            value = value << 8 | f[i];
        }
        *out = value;
        return true;
    }
    int i = 0, digits = 0;
    while (i < width && f[i] == ' ')
        i++;
    for (; i < width && f[i] >= '0' && f[i] <= '7'; i++, digits++) {
        if (value >> 59)
            return false;
        value = value << 3 | (f[i] - '0');
    }
    for (; i < width; i++) {
        if (f[i] != ' ' && f[i] != 0)
            return false;
    }
    *out = value;
    return digits > 0;
}

static bool block_is_zero(const unsigned char *block)
{
    static const unsigned char zero[TAR_BLOCK];
    return !memcmp(block, zero, TAR_BLOCK);
}

static bool header_is_valid(const unsigned char *block)
{
    const tar_header *h = (const tar_header *)block;
    int64_t stored;
    return read_number(h->checksum, sizeof h->checksum, &stored) && stored == tar_block_sum(block);
}

/* Pax records "<length> key=value\n": keeps path and size, notes GNU's for sparse files. False: not
 * a list of such. */
static bool read_pax(const char *text, int64_t bytes, weft_buf *path, int64_t *size, bool *sparse)
{
    while (bytes > 0) {
        int64_t len = 0, i = 0;
        for (; i < bytes && text[i] >= '0' && text[i] <= '9' && len <= bytes; i++)
            len = len * 10 + (text[i] - '0');
        if (i == 0 || i >= bytes || text[i] != ' ' || len > bytes || len < i + 3 ||
            text[len - 1] != '\n')
            return false;
        const char *key = text + i + 1, *end = text + len - 1;
        const char *equals = memchr(key, '=', (size_t)(end - key));
        if (!equals)
            return false;
        if (equals - key > 11 && !memcmp(key, "GNU.sparse.", 11))
            *sparse = true;
        if (equals - key == 4 && !memcmp(key, "path", 4)) {
            path->len = 0;
            weft_buf_append(path, equals + 1, end - equals - 1);
        } else if (equals - key == 4 && !memcmp(key, "size", 4)) {
            int64_t value = 0;
            if (equals + 1 == end)
                return false;
            for (const char *p = equals + 1; p < end; p++) {
                if (*p < '0' || *p > '9' || value > INT64_MAX / 16)
                    return false;
                value = value * 10 + (*p - '0');
            }
            *size = value;
        }
        text += len;
        bytes -= len;
    }
    return true;
}

static void plain_name(const tar_header *h, weft_buf *name)
{
    name->len = 0;
    if (!memcmp(h->magic, "ustar", 6) && h->prefix[0]) {
        weft_buf_append(name, h->prefix, (int64_t)strnlen(h->prefix, sizeof h->prefix));
        weft_buf_append(name, "/", 1);
    }
    weft_buf_append(name, h->name, (int64_t)strnlen(h->name, sizeof h->name));
}

/* ---- members ------------------------------------------------------------------------------- */

/* The part of the archive that was read last. If reading continues at its end, the next part is
  * twice as long: one part then has many headers of small members, or a few blocks of a large
  * one. */
typedef struct window {
    unsigned char *data; /* owned */
    int64_t at, bytes, capacity;
} window;
enum { WINDOW_LEAST = 8 << 10, WINDOW_MOST = 256 << 10 };

typedef struct reader {
    const weft_tar_input *input;
    const char *path;
    weft_arena *arena;
    window window;
    int64_t at;     /* offset of the next header */
    int64_t header; /* offset of the first header of the next member; -1: `at` */
    weft_buf name;  /* the member's name, from an extended header or its own */
    bool named;     /* `name` belongs to the next member */
    int64_t size;   /* size from a pax header; -1: none */
    bool sparse;    /* a pax header marks the next member as sparse */
    weft_tar_index found;
    int64_t damaged_regions; /* number of damaged regions */
} reader;

/* *data: the bytes at `at`, inside the archive; valid until the next call. */
static weft_status view(reader *r, int64_t at, int64_t bytes, const unsigned char **data)
{
    window *w = &r->window;
    if (at >= w->at && at + bytes <= w->at + w->bytes) {
        *data = w->data + (at - w->at);
        return WEFT_OK;
    }
    const bool goes_on = w->bytes > 0 && at >= w->at && at <= w->at + w->bytes;
    int64_t wanted = goes_on ? 2 * w->bytes : WINDOW_LEAST;
    wanted = wanted > WINDOW_MOST ? WINDOW_MOST : wanted;
    wanted = wanted < bytes ? bytes : wanted;
    wanted = wanted > r->input->bytes - at ? r->input->bytes - at : wanted;
    if (wanted > w->capacity) {
        unsigned char *larger = weft_realloc(w->data, wanted);
        WEFT_TRY(WEFT_ALLOCATED(larger, "%s", r->path));
        w->data = larger;
        w->capacity = wanted;
    }
    w->bytes = 0;
    WEFT_TRY(r->input->read(r->input->self, at, wanted, w->data));
    w->at = at;
    w->bytes = wanted;
    *data = w->data;
    return WEFT_OK;
}

static weft_status read_memory(void *self, int64_t at, int64_t bytes, void *to)
{
    memcpy(to, ((const weft_map *)self)->data + at, (size_t)bytes);
    return WEFT_OK;
}

weft_tar_input weft_tar_memory(const weft_map *map)
{
    return (weft_tar_input){
        .self = (void *)(uintptr_t)map, .bytes = map->bytes, .read = read_memory};
}

/* A place that costs a member; the first one makes the message. */
static weft_status record_damage(reader *r, int64_t at, const char *what, const char *remedy)
{
    r->damaged_regions++;
    if (!r->found.damage)
        r->found.damage = weft_arena_printf(
            r->arena, "%s: %s at byte %" PRId64 " of %" PRId64 ", after %" PRId64 " members: %s",
            r->path, what, at, r->input->bytes, r->found.count, remedy);
    WEFT_TRY(WEFT_ALLOCATED(r->found.damage, "%s", r->path));
    r->named = r->sparse = false;
    r->size = r->header = -1;
    return WEFT_OK;
}

/* Records damage at `at` and continues at the next block that is a valid header, if any. */
static weft_status note_damage(reader *r, int64_t at, const char *what)
{
    WEFT_TRY(
        record_damage(r, at, what, "the file is damaged or was truncated while it was copied"));
    for (r->at = at + TAR_BLOCK; r->at <= r->input->bytes - TAR_BLOCK; r->at += TAR_BLOCK) {
        const unsigned char *block;
        WEFT_TRY(view(r, r->at, TAR_BLOCK, &block));
        if (!memcmp(block + 257, "ustar", 5) && header_is_valid(block))
            return WEFT_OK;
    }
    r->at = r->input->bytes;
    return WEFT_OK;
}

static weft_status add_member(reader *r, const tar_header *h, int64_t at, int64_t bytes)
{
    if (!r->named)
        plain_name(h, &r->name);
    WEFT_TRY(weft_buf_check(&r->name));
    const char *name = weft_arena_strdup(r->arena, r->name.data ? r->name.data : "");
    WEFT_TRY(WEFT_ALLOCATED(name, "%s", r->path));
    WEFT_TRY(weft_grow((void **)&r->found.member, r->found.count, &r->found.capacity,
                       sizeof *r->found.member));
    r->found.member[r->found.count++] =
        (weft_tar_member){.name = name, .header = r->header, .at = at, .bytes = bytes};
    return WEFT_OK;
}

/* A long name (GNU 'L') or pax records ('x') for the member that follows. False: damaged. */
static bool read_extended(reader *r, char type, const char *data, int64_t bytes)
{
    if (bytes > MAX_NAME)
        return false;
    if (type == 'L') {
        r->name.len = 0;
        weft_buf_append(&r->name, data, (int64_t)strnlen(data, (size_t)bytes));
        r->named = true;
        return true;
    }
    weft_buf path = {0};
    const bool good = read_pax(data, bytes, &path, &r->size, &r->sparse);
    if (path.len > 0) {
        r->name.len = 0;
        weft_buf_append(&r->name, path.data, (int64_t)strlen(path.data));
        r->named = true;
    }
    r->name.failed = r->name.failed || path.failed;
    weft_buf_free(&path);
    return good;
}

/* Adds the blocks that continue GNU's old sparse header before the data to *bytes. The flag for a
 * further block is at byte 482, then at 504. */
static weft_status count_sparse_blocks(reader *r, int64_t at, bool flag, int64_t left,
                                       int64_t *bytes)
{
    for (int64_t next = at + TAR_BLOCK; flag && *bytes <= left - TAR_BLOCK; next += TAR_BLOCK) {
        const unsigned char *block;
        WEFT_TRY(view(r, next, TAR_BLOCK, &block));
        flag = block[504];
        *bytes += TAR_BLOCK;
    }
    return WEFT_OK;
}

static weft_status count_link(reader *r, const tar_header *h)
{
    if (r->found.links++ > 0)
        return WEFT_OK;
    r->found.link = r->named ? weft_arena_strdup(r->arena, r->name.data)
                             : weft_arena_printf(r->arena, "%.*s", (int)sizeof h->name, h->name);
    return WEFT_ALLOCATED(r->found.link, "%s", r->path);
}

/* Reads the header at r->at and its extensions. */
static weft_status read_header(reader *r)
{
    const int64_t at = r->at, left = r->input->bytes - at - TAR_BLOCK;
    const unsigned char *block;
    int64_t bytes;
    tar_header header;
    WEFT_TRY(view(r, at, TAR_BLOCK, &block));
    if (!header_is_valid(block))
        return note_damage(r, at, "a header's checksum is wrong");
    memcpy(&header, block, sizeof header);
    const tar_header *h = &header;
    if (!read_number(h->size, sizeof h->size, &bytes))
        return note_damage(r, at, "a header's size is not a number");
    const bool regular = h->type == '0' || h->type == 0 || h->type == '7';
    const bool flag = block[482];
    if (h->type >= '1' && h->type <= '6')
        bytes = 0; /* links, devices and folders have no data whatever their size says */
    if (regular && r->size >= 0)
        bytes = r->size;
    if (bytes > left)
        return note_damage(r, at, "the archive ends inside the member that begins");
    if (r->header < 0)
        r->header = at;
    if (h->type == 'S')
        WEFT_TRY(count_sparse_blocks(r, at, flag, left, &bytes));
    const int64_t padded = tar_padded(bytes);
    r->at = padded > left ? r->input->bytes : at + TAR_BLOCK + padded;
    if (h->type == 'L' || h->type == 'x') {
        const unsigned char *data = NULL;
        if (bytes > 0 && bytes <= MAX_NAME)
            WEFT_TRY(view(r, at + TAR_BLOCK, bytes, &data));
        if (!read_extended(r, h->type, (const char *)data, bytes))
            return note_damage(r, at, "a long name or its pax records are not what they say");
        return WEFT_OK;
    }
    if (h->type == 'S' || (regular && r->sparse)) /* its bytes are a list of pieces, not the file */
        return record_damage(r, at, "a sparse file is stored",
                             "write the archive without --sparse");
    if (regular)
        WEFT_TRY(add_member(r, h, at + TAR_BLOCK, bytes));
    if (h->type == '1' || h->type == '2')
        WEFT_TRY(count_link(r, h));
    if (h->type != 'g' &&
        h->type != 'K') { /* both speak of what follows, not of this member's name */
        r->named = r->sparse = false;
        r->size = -1;
    }
    r->header = -1;
    return WEFT_OK;
}

/* Reads the two zero blocks at r->at that end an archive. Only zeros may follow them. A block that
 * a disk or a copy lost reads as zeros and looks like an end, so members after it are read, too. */
static weft_status read_end(reader *r)
{
    enum { LONGEST_EMPTY = 20 * TAR_BLOCK }; /* what tar writes of no files at all */
    static const unsigned char zero[WINDOW_LEAST];
    const int64_t end = r->at;
    for (int64_t at = end, bytes; at < r->input->bytes; at += bytes) {
        const unsigned char *data;
        bytes = r->input->bytes - at < WINDOW_LEAST ? r->input->bytes - at : WINDOW_LEAST;
        WEFT_TRY(view(r, at, bytes, &data));
        if (memcmp(data, zero, (size_t)bytes))
            return note_damage(r, end, "data follows the end mark of the archive");
    }
    if (r->found.count == 0 && r->input->bytes > LONGEST_EMPTY)
        return note_damage(r, end, "it is nothing but zeros");
    r->at = r->input->bytes;
    return WEFT_OK;
}

static weft_status check_pointer(reader *r)
{
    const unsigned char *text;
    if (!r->input->bytes || r->input->bytes > WEFT_LFS_POINTER_MOST)
        return WEFT_OK;
    WEFT_TRY(view(r, 0, r->input->bytes, &text));
    return weft_lfs_pointer_refuse(r->path, text, r->input->bytes);
}

static weft_status read_all(reader *r)
{
    bool ended = false;
    WEFT_TRY(check_pointer(r));
    while (r->at < r->input->bytes) {
        const int64_t left = r->input->bytes - r->at;
        const unsigned char *block;
        if (left < TAR_BLOCK) {
            WEFT_TRY(note_damage(r, r->at, "the archive ends inside a header"));
            continue;
        }
        WEFT_TRY(view(r, r->at, TAR_BLOCK, &block));
        if (!block_is_zero(block)) {
            ended = false;
            WEFT_TRY(read_header(r));
            continue;
        }
        /* two zero blocks end an archive; an appended archive continues after a single one */
        ended = true;
        if (left < 2 * TAR_BLOCK) {
            if (left == TAR_BLOCK)
                break;
        } else {
            WEFT_TRY(view(r, r->at + TAR_BLOCK, TAR_BLOCK, &block));
            if (block_is_zero(block)) {
                WEFT_TRY(read_end(r));
                continue;
            }
        }
        r->at += TAR_BLOCK;
    }
    if (!ended && !r->damaged_regions)
        return note_damage(r, r->at, "the archive ends without its end mark");
    return WEFT_OK;
}

weft_status weft_tar_open(const weft_tar_input *input, const char *path, weft_arena *arena,
                          weft_tar_index *index)
{
    reader r = {.input = input, .path = path, .arena = arena, .size = -1, .header = -1};
    weft_status_code status = WEFT_OK;
    WEFT_GO(read_all(&r));
    if (r.found.damage && r.found.count == 0)
        WEFT_GO(weft_error(WEFT_MSG_FORMAT_UNKNOWN, WEFT_AT(.file = path),
                           input->bytes ? "not a readable tar archive"
                                        : "not a tar archive: the file is empty"));
out:
    weft_buf_free(&r.name);
    weft_free(r.window.data);
    if (status != WEFT_OK) {
        weft_tar_close(&r.found);
        return status;
    }
    r.found.damaged_regions = r.damaged_regions;
    *index = r.found;
    return WEFT_OK;
}

void weft_tar_close(weft_tar_index *index)
{
    weft_free(index->member);
    *index = (weft_tar_index){0};
}
