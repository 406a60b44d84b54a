#include "format/tar.h"
#include "format/tar_header.h"

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

typedef struct reader {
    const weft_map *map;
    const char *path;
    weft_arena *arena;
    int64_t at;    /* of the next header */
    weft_buf name; /* from an extended header, or of the member */
    bool named;    /* `name` is of the member that comes */
    int64_t size;  /* from a pax header; -1: none */
    bool sparse;   /* pax says that the member that comes is stored with holes */
    weft_tar_index found;
    int64_t places; /* of damage */
} reader;

/* A place that costs a member; the first one makes the message. */
static weft_status note_place(reader *r, int64_t at, const char *what, const char *remedy)
{
    r->places++;
    if (!r->found.damage)
        r->found.damage = weft_arena_printf(
            r->arena, "%s: %s at byte %lld of %lld, after %lld members: %s", r->path, what,
            (long long)at, (long long)r->map->bytes, (long long)r->found.count, remedy);
    if (!r->found.damage)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", r->path);
    r->named = r->sparse = false;
    r->size = -1;
    return WEFT_OK;
}

/* Notes damage at `at` and goes on at the next block that is a valid header, if there is one. */
static weft_status note_damage(reader *r, int64_t at, const char *what)
{
    WEFT_TRY(note_place(r, at, what, "damaged, or cut off while it was copied?"));
    for (r->at = at + TAR_BLOCK; r->at <= r->map->bytes - TAR_BLOCK; r->at += TAR_BLOCK) {
        const unsigned char *block = r->map->data + r->at;
        if (!memcmp(block + 257, "ustar", 5) && header_is_valid(block))
            return WEFT_OK;
    }
    r->at = r->map->bytes;
    return WEFT_OK;
}

static weft_status add_member(reader *r, const tar_header *h, const unsigned char *data,
                              int64_t bytes)
{
    if (!r->named)
        plain_name(h, &r->name);
    WEFT_TRY(weft_buf_check(&r->name));
    const char *name = weft_arena_strdup(r->arena, r->name.data ? r->name.data : "");
    if (!name)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", r->path);
    WEFT_TRY(weft_grow((void **)&r->found.member, r->found.count, &r->found.capacity,
                       sizeof *r->found.member));
    r->found.member[r->found.count++] =
        (weft_tar_member){.name = name, .data = data, .bytes = bytes};
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

/* The header at r->at, with what it brings. */
static weft_status read_header(reader *r)
{
    const int64_t at = r->at, left = r->map->bytes - at - TAR_BLOCK;
    const unsigned char *block = r->map->data + at, *data = block + TAR_BLOCK;
    const tar_header *h = (const tar_header *)block;
    int64_t bytes;
    if (!header_is_valid(block))
        return note_damage(r, at, "a header's checksum is wrong");
    if (!read_number(h->size, sizeof h->size, &bytes))
        return note_damage(r, at, "a header's size is not a number");
    const bool regular = h->type == '0' || h->type == 0 || h->type == '7';
    if (h->type >= '1' && h->type <= '6')
        bytes = 0; /* links, devices and folders have no data whatever their size says */
    if (regular && r->size >= 0)
        bytes = r->size;
    if (bytes > left)
        return note_damage(r, at, "the archive ends inside the member that begins");
    /* GNU's old sparse header goes on in blocks before the data; the flag for another one is at
     * 482, then at 504 */
    const unsigned char *flag = block + 482;
    while (h->type == 'S' && *flag && bytes <= left - TAR_BLOCK) {
        flag = (flag == block + 482 ? block + TAR_BLOCK : flag - 504 + TAR_BLOCK) + 504;
        bytes += TAR_BLOCK;
    }
    const int64_t padded = tar_padded(bytes);
    r->at = padded > left ? r->map->bytes : at + TAR_BLOCK + padded;
    if (h->type == 'L' || h->type == 'x') {
        if (!read_extended(r, h->type, (const char *)data, bytes))
            return note_damage(r, at, "a long name or its pax records are not what they say");
        return WEFT_OK;
    }
    if (h->type == 'S' || (regular && r->sparse)) /* its bytes are a list of pieces, not the file */
        return note_place(r, at, "a sparse file is stored", "write the archive without --sparse");
    if (regular)
        WEFT_TRY(add_member(r, h, data, bytes));
    if (h->type != 'g' &&
        h->type != 'K') { /* both speak of what follows, not of this member's name */
        r->named = r->sparse = false;
        r->size = -1;
    }
    return WEFT_OK;
}

static weft_status read_all(reader *r)
{
    bool ended = false;
    while (r->at < r->map->bytes) {
        const int64_t left = r->map->bytes - r->at;
        const unsigned char *block = r->map->data + r->at;
        if (left < TAR_BLOCK) {
            WEFT_TRY(note_damage(r, r->at, "the archive ends inside a header"));
        } else if (block_is_zero(block)) {
            /* two such blocks end it; archives that were appended to go on after a lone one */
            ended = true;
            if (left == TAR_BLOCK || (left >= 2 * TAR_BLOCK && block_is_zero(block + TAR_BLOCK)))
                break;
            r->at += TAR_BLOCK;
        } else {
            ended = false;
            WEFT_TRY(read_header(r));
        }
    }
    if (!ended && !r->places)
        return note_damage(r, r->at, "the archive ends without its end mark");
    return WEFT_OK;
}

weft_status weft_tar_open(const weft_map *map, const char *path, weft_arena *arena,
                          weft_tar_index *index)
{
    reader r = {.map = map, .path = path, .arena = arena, .size = -1};
    weft_status_code status = read_all(&r);
    if (status == WEFT_OK && r.found.damage && r.found.count == 0)
        status = weft_fail(WEFT_E_FORMAT,
                           map->bytes ? "%s: not a readable tar archive"
                                      : "%s: not a tar archive: the file is empty",
                           path);
    weft_buf_free(&r.name);
    if (status != WEFT_OK) {
        weft_tar_close(&r.found);
        return status;
    }
    r.found.damaged_places = r.places;
    *index = r.found;
    return WEFT_OK;
}

void weft_tar_close(weft_tar_index *index)
{
    weft_free(index->member);
    *index = (weft_tar_index){0};
}
