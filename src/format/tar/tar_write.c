#include "format/tar/tar_write.h"

#include "base/hash.h"
#include "format/tar/tar.h"
#include "format/tar/tar_header.h"

#include <stdio.h>
#include <string.h>

struct weft_tar_writer {
    weft_tar_output output;
    XXH3_state_t *hash, *member_hash;
    int64_t bytes;
    weft_tar_member last; /* the member that is being written, or was */
    int64_t written;      /* bytes of the member so far */
    uint64_t last_sum;
};

weft_status weft_tar_create_on(const weft_tar_output *output, weft_tar_writer **writer)
{
    weft_tar_writer *w = weft_alloc(sizeof *w);
    if (w) {
        w->output = *output;
        w->hash = XXH3_createState();
        w->member_hash = XXH3_createState();
    }
    if (!w || !w->hash || !w->member_hash) {
        if (w)
            weft_tar_free(w);
        else
            output->free(output->self);
        return weft_no_memory("an archive");
    }
    XXH3_64bits_reset(w->hash);
    *writer = w;
    return WEFT_OK;
}

/* ---- a file as output ---------------------------------------------------------------------- */

static weft_status file_write(void *self, const void *data, int64_t bytes)
{
    return weft_file_write(self, data, bytes);
}

static weft_status file_commit(void *self)
{
    return weft_file_commit(self);
}

static void file_free(void *self)
{
    weft_file_abort(self);
    weft_free(self);
}

weft_status weft_tar_create(const char *path, weft_tar_writer **writer)
{
    weft_file_writer *file;
    WEFT_TRY(WEFT_NEW(file, 1, "%s", path));
    const weft_status_code status = weft_file_begin(file, path);
    if (status != WEFT_OK) {
        weft_free(file);
        return status;
    }
    const weft_tar_output output = {
        .self = file, .write = file_write, .commit = file_commit, .free = file_free};
    return weft_tar_create_on(&output, writer);
}

/* ---- members ------------------------------------------------------------------------------- */

static weft_status put(weft_tar_writer *w, const void *data, int64_t bytes)
{
    if (bytes == 0)
        return WEFT_OK;
    WEFT_TRY(w->output.write(w->output.self, data, bytes));
    XXH3_64bits_update(w->hash, data, (size_t)bytes);
    w->bytes += bytes;
    return WEFT_OK;
}

static weft_status put_padding(weft_tar_writer *w, int64_t bytes)
{
    static const char zero[TAR_BLOCK];
    return put(w, zero, tar_padded(bytes) - bytes);
}

/* The length of the prefix of a name; 0 if it needs none, -1 if the name does not fit ustar. */
static int64_t prefix_cut(const char *name)
{
    const int64_t len = (int64_t)strlen(name);
    if (len <= 100)
        return 0;
    for (int64_t cut = len - 101 < 0 ? 0 : len - 101; cut < len - 1 && cut <= 155; cut++) {
        if (name[cut] == '/' && cut > 0)
            return cut;
    }
    return -1;
}

static const int64_t octal_limit = (int64_t)1 << 33; /* limit of 11 octal digits */

static int64_t pax_text(const char *name, int64_t bytes, weft_buf *out)
{
    const char *keys[2] = {"path", "size"};
    for (int k = 0; k < 2; k++) {
        if (k == 0 ? prefix_cut(name) >= 0 : bytes < octal_limit)
            continue;
        char number[24];
        snprintf(number, sizeof number, "%" PRId64, bytes);
        const char *value = k == 0 ? name : number;
        /* the length counts its own digits */
        int64_t body = 1 + 4 + 1 + (int64_t)strlen(value) + 1, len = body;
        for (int64_t before = 0; before != len;) {
            before = len;
            len = body + snprintf(NULL, 0, "%" PRId64, len);
        }
        weft_buf_printf(out, "%" PRId64 " %s=%s\n", len, keys[k], value);
    }
    return out->len;
}

static weft_status put_header(weft_tar_writer *w, const char *name, char type, int64_t bytes)
{
    union {
        tar_header h;
        unsigned char block[TAR_BLOCK];
    } u = {0};
    tar_header *h = &u.h;
    const int64_t cut = prefix_cut(name);
    if (cut > 0)
        memcpy(h->prefix, name, (size_t)cut);
    const char *rest = cut > 0 ? name + cut + 1 : name;
    memcpy(h->name, rest, strnlen(rest, sizeof h->name));
    memcpy(h->mode, "0000644", 8);
    memcpy(h->uid, "0000000", 8);
    memcpy(h->gid, "0000000", 8);
    char number[24];
    snprintf(number, sizeof number, "%011llo",
             (unsigned long long)(bytes < octal_limit ? bytes : 0));
    memcpy(h->size, number, 12);
    memcpy(h->mtime, "00000000000", 12);
    h->type = type;
    memcpy(h->magic, "ustar", 6);
    memcpy(h->version, "00", 2);
    snprintf(number, sizeof number, "%06llo", (unsigned long long)tar_block_sum(u.block));
    memcpy(h->checksum, number, 7);
    h->checksum[7] = ' ';
    return put(w, u.block, TAR_BLOCK);
}

weft_status weft_tar_begin(weft_tar_writer *w, const char *name, int64_t bytes)
{
    weft_buf pax = {0};
    weft_status_code status = WEFT_OK;
    w->last = (weft_tar_member){.header = w->bytes, .bytes = bytes};
    w->written = 0;
    XXH3_64bits_reset(w->member_hash);
    if (pax_text(name, bytes, &pax) > 0) {
        WEFT_GO(weft_buf_check(&pax));
        WEFT_GO(put_header(w, "pax", 'x', pax.len));
        WEFT_GO(put(w, pax.data, pax.len));
        WEFT_GO(put_padding(w, pax.len));
    }
    WEFT_GO(put_header(w, name, '0', bytes));
    w->last.at = w->bytes;
out:
    weft_buf_free(&pax);
    return status;
}

weft_status weft_tar_append(weft_tar_writer *w, const void *data, int64_t bytes)
{
    XXH3_64bits_update(w->member_hash, data, (size_t)bytes);
    w->written += bytes;
    return put(w, data, bytes);
}

weft_status weft_tar_end(weft_tar_writer *w)
{
    if (w->written != w->last.bytes)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                          "%" PRId64 " bytes were written to a tar member of %" PRId64 " bytes",
                          w->written, w->last.bytes);
    w->last_sum = XXH3_64bits_digest(w->member_hash);
    return put_padding(w, w->last.bytes);
}

weft_status weft_tar_add(weft_tar_writer *w, const char *name, const void *data, int64_t bytes)
{
    WEFT_TRY(weft_tar_begin(w, name, bytes));
    if (bytes > 0)
        WEFT_TRY(weft_tar_append(w, data, bytes));
    return weft_tar_end(w);
}

weft_tar_member weft_tar_last(const weft_tar_writer *w, uint64_t *xxh3_of_its_data)
{
    *xxh3_of_its_data = w->last_sum;
    return w->last;
}

weft_status weft_tar_finish(weft_tar_writer *w, uint64_t *hash, int64_t *bytes)
{
    static const char zero[2 * TAR_BLOCK];
    WEFT_TRY(put(w, zero, sizeof zero));
    WEFT_TRY(w->output.commit(w->output.self));
    if (hash)
        *hash = XXH3_64bits_digest(w->hash);
    if (bytes)
        *bytes = w->bytes;
    return WEFT_OK;
}

void weft_tar_free(weft_tar_writer *w)
{
    if (!w)
        return;
    XXH3_freeState(w->hash);
    XXH3_freeState(w->member_hash);
    w->output.free(w->output.self);
    weft_free(w);
}
