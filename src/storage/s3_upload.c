#include "storage/s3_upload.h"

#include "base/hex.h"
#include "storage/s3_xml.h"
#include "storage/stoppable_wait.h"

#include <libavutil/md5.h>
#include <libavutil/mem.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* A part that is filled or sent. */
typedef struct part {
    weft_s3_upload *upload;
    char *data; /* owned, [WEFT_S3_PART_BYTES] */
    int64_t bytes;
    int number; /* from 1 */
    pthread_t thread;
    bool sending;
    bool ignores_interrupt; /* as the thread that writes */
    weft_status_code status;
    weft_error_copy *error; /* of the thread; owned */
    char etag[WEFT_ETAG_BYTES];
} part;

struct weft_s3_upload {
    weft_s3 *s3;
    char *key, *id; /* owned; id NULL: no multipart upload was begun */
    part part[WEFT_S3_PARTS_IN_FLIGHT];
    int current; /* index of the part being filled */
    int parts;   /* numbers given so far */
    char **etag; /* owned, [parts] */
    int64_t etag_capacity, bytes;
    bool done;
};

weft_status weft_s3_upload_begin(weft_s3 *s3, const char *key, weft_s3_upload **upload)
{
    weft_s3_upload *u;
    WEFT_TRY(WEFT_NEW(u, 1, "%s", key));
    u->s3 = s3;
    u->key = weft_strdup(key);
    if (!u->key) {
        weft_free(u);
        return weft_no_memory("%s", key);
    }
    for (int i = 0; i < WEFT_S3_PARTS_IN_FLIGHT; i++)
        u->part[i].upload = u;
    *upload = u;
    return WEFT_OK;
}

/* ---- parts --------------------------------------------------------------------------------- */

static weft_status create(weft_s3_upload *u)
{
    const weft_name_value query = {"uploads", ""};
    char id[2048];
    weft_http_reply reply;
    WEFT_TRY(weft_s3_send(
        u->s3,
        &(weft_s3_request){.method = "POST", .key = u->key, .query = &query, .query_count = 1},
        &reply));
    weft_xml_text(reply.body.data, "UploadId", id, sizeof id);
    weft_http_reply_free(&reply);
    if (!*id)
        return weft_error(WEFT_MSG_STORAGE_REQUEST, WEFT_AT(.file = u->key),
                          "the server began an upload without an UploadId; it is not an S3 server "
                          "that weft can write to");
    u->id = weft_strdup(id);
    return WEFT_ALLOCATED(u->id, "%s", u->key);
}

static void *send_part(void *user)
{
    part *p = user;
    const weft_s3_upload *u = p->upload;
    char number[16];
    weft_http_reply reply;
    weft_stop_ignore_interrupt(p->ignores_interrupt);
    snprintf(number, sizeof number, "%d", p->number);
    const weft_name_value query[] = {{"partNumber", number}, {"uploadId", u->id}};
    p->status = weft_s3_send(u->s3,
                             &(weft_s3_request){.method = "PUT",
                                                .key = u->key,
                                                .query = query,
                                                .query_count = 2,
                                                .body = p->data,
                                                .body_bytes = p->bytes},
                             &reply);
    if (p->status == WEFT_OK && !*reply.etag)
        p->status = weft_error(WEFT_MSG_STORAGE_REQUEST, WEFT_AT(.file = u->key),
                               "the server took a part without an ETag; it is not an S3 server "
                               "that weft can write to");
    snprintf(p->etag, sizeof p->etag, "%s", reply.etag);
    weft_http_reply_free(&reply);
    if (p->status != WEFT_OK)
        p->error = weft_error_save();
    return NULL;
}

/* Waits for the part and keeps its ETag. */
static weft_status join(weft_s3_upload *u, part *p)
{
    if (!p->sending)
        return WEFT_OK;
    pthread_join(p->thread, NULL);
    p->sending = false;
    p->bytes = 0;
    if (p->status != WEFT_OK) {
        const weft_status_code status =
            p->error ? weft_error_restore(p->error) : weft_no_memory("%s", u->key);
        weft_free(p->error);
        p->error = NULL;
        return status;
    }
    u->etag[p->number - 1] = weft_strdup(p->etag);
    return WEFT_ALLOCATED(u->etag[p->number - 1], "%s", u->key);
}

static weft_status start_part(weft_s3_upload *u)
{
    part *p = &u->part[u->current];
    if (u->parts == WEFT_S3_MOST_PARTS)
        return weft_error(WEFT_MSG_STORAGE_REQUEST, WEFT_AT(.file = u->key),
                          "the object has more than %d parts of %d MiB. Write smaller files.",
                          WEFT_S3_MOST_PARTS, WEFT_S3_PART_BYTES >> 20);
    if (!u->id)
        WEFT_TRY(create(u));
    WEFT_TRY(weft_grow((void **)&u->etag, u->parts, &u->etag_capacity, sizeof *u->etag));
    u->etag[u->parts] = NULL;
    p->number = ++u->parts;
    p->status = WEFT_OK;
    p->ignores_interrupt = weft_stop_ignores_interrupt();
    if (pthread_create(&p->thread, NULL, send_part, p) != 0)
        return weft_no_memory("a thread");
    p->sending = true;
    u->current = (u->current + 1) % WEFT_S3_PARTS_IN_FLIGHT;
    return join(u, &u->part[u->current]);
}

weft_status weft_s3_upload_write(weft_s3_upload *u, const void *data, int64_t bytes)
{
    for (int64_t done = 0; done < bytes;) {
        part *p = &u->part[u->current];
        if (!p->data)
            WEFT_TRY(WEFT_NEW(p->data, WEFT_S3_PART_BYTES, "a part of %s", u->key));
        if (p->bytes == WEFT_S3_PART_BYTES) { /* more follows, so this is not the last part */
            WEFT_TRY(start_part(u));
            continue;
        }
        const int64_t space = WEFT_S3_PART_BYTES - p->bytes, left = bytes - done,
                      n = left < space ? left : space;
        memcpy(p->data + p->bytes, (const char *)data + done, (size_t)n);
        p->bytes += n;
        u->bytes += n;
        done += n;
    }
    return WEFT_OK;
}

/* ---- commit -------------------------------------------------------------------------------- */

static weft_status put_small(weft_s3_upload *u, char etag[WEFT_ETAG_BYTES])
{
    const part *p = &u->part[0];
    weft_http_reply reply;
    WEFT_TRY(weft_s3_send(
        u->s3,
        &(weft_s3_request){
            .method = "PUT", .key = u->key, .body = p->data ? p->data : "", .body_bytes = p->bytes},
        &reply));
    snprintf(etag, WEFT_ETAG_BYTES, "%s", reply.etag);
    weft_http_reply_free(&reply);
    return WEFT_OK;
}

/* The ETag that S3 gives an object of parts: MD5 of the parts' MD5, and their number. false: a
 * part has an ETag of another kind, as with some encryptions. */
static bool etag_of_parts(const weft_s3_upload *u, char etag[WEFT_ETAG_BYTES])
{
    struct AVMD5 *md5 = av_md5_alloc();
    uint8_t digest[16], sum[16];
    bool known = md5 != NULL;
    if (md5)
        av_md5_init(md5);
    for (int i = 0; i < u->parts && known; i++) {
        const char *hex = u->etag[i] + (u->etag[i][0] == '"');
        known = weft_hex_read(hex, sizeof sum, sum);
        if (known)
            av_md5_update(md5, sum, sizeof sum);
    }
    if (known) {
        av_md5_final(md5, digest);
        etag[0] = '"';
        weft_hex_write(digest, sizeof digest, etag + 1);
        snprintf(etag + 33, WEFT_ETAG_BYTES - 33, "-%d\"", u->parts);
    }
    av_free(md5);
    return known;
}

/* Reads a part of the object of this version. */
static weft_status read_back(weft_s3_upload *u, const char *version, int64_t at, int64_t bytes,
                             char *to)
{
    const weft_remote_range of = {"s3", u->key, version, u->bytes, weft_s3_version_of};
    weft_http_range range = weft_remote_range_of(&of, at, bytes);
    weft_http_reply reply;
    WEFT_TRY(weft_s3_send(u->s3,
                          &(weft_s3_request){.method = "GET",
                                             .key = u->key,
                                             .range = &range,
                                             .if_match = *version ? version : NULL,
                                             .to = to,
                                             .to_bytes = bytes},
                          &reply));
    const weft_status_code status = weft_remote_range_check(&range, &reply);
    weft_http_reply_free(&reply);
    return status;
}

/* Whether the object's bytes have the MD5 of this upload's parts. */
static bool has_parts(weft_s3_upload *u, const char *version)
{
    uint8_t sum[16], own[16];
    bool same = true;
    for (int i = 0; i < u->parts && same; i++) {
        const int64_t at = (int64_t)i * WEFT_S3_PART_BYTES, left = u->bytes - at,
                      bytes = left < WEFT_S3_PART_BYTES ? left : WEFT_S3_PART_BYTES;
        same = weft_hex_read(u->etag[i] + (u->etag[i][0] == '"'), sizeof own, own) &&
               read_back(u, version, at, bytes, u->part[0].data) == WEFT_OK;
        if (same)
            av_md5_sum(sum, (const uint8_t *)u->part[0].data, (size_t)bytes);
        same = same && !memcmp(sum, own, sizeof sum);
    }
    return same;
}

/* A repeated Complete fails with NoSuchUpload if the first one succeeded and its reply was lost.
 * The object then has the size of this upload, and the ETag or the bytes of its parts: some servers
 * give it another ETag. */
static weft_status find_completed(weft_s3_upload *u)
{
    char own_etag[WEFT_ETAG_BYTES];
    weft_http_reply reply;
    weft_error_copy *first = weft_error_save();
    weft_status_code status = WEFT_OK;
    bool own = weft_s3_send(u->s3, &(weft_s3_request){.method = "HEAD", .key = u->key}, &reply) ==
                   WEFT_OK &&
               reply.length == u->bytes;
    if (own && !(etag_of_parts(u, own_etag) && !strcmp(reply.etag, own_etag)))
        own = has_parts(u, reply.etag);
    if (!own)
        status = first ? weft_error_restore(first) : weft_no_memory("%s", u->key);
    weft_http_reply_free(&reply);
    weft_free(first);
    return status;
}

static weft_status complete(weft_s3_upload *u)
{
    const weft_name_value query = {"uploadId", u->id};
    weft_buf list = {0};
    weft_http_reply reply;
    weft_buf_printf(&list, "<CompleteMultipartUpload>");
    for (int i = 0; i < u->parts; i++)
        weft_buf_printf(&list, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", i + 1,
                        u->etag[i]);
    weft_buf_printf(&list, "</CompleteMultipartUpload>");
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&list));
    WEFT_GO(weft_s3_send(u->s3,
                         &(weft_s3_request){.method = "POST",
                                            .key = u->key,
                                            .query = &query,
                                            .query_count = 1,
                                            .body = list.data,
                                            .body_bytes = list.len},
                         &reply));
out:
    weft_buf_free(&list);
    if (status == WEFT_E_NOT_FOUND)
        return find_completed(u);
    WEFT_TRY(status);
    weft_http_reply_free(&reply);
    return WEFT_OK;
}

weft_status weft_s3_upload_commit(weft_s3_upload *u, int64_t *bytes, char etag[WEFT_ETAG_BYTES])
{
    if (!u->id) {
        WEFT_TRY(put_small(u, etag));
    } else {
        WEFT_TRY(start_part(u));
        for (int i = 0; i < WEFT_S3_PARTS_IN_FLIGHT; i++)
            WEFT_TRY(join(u, &u->part[i]));
        WEFT_TRY(complete(u));
        *etag = 0;
    }
    u->done = true;
    *bytes = u->bytes;
    return WEFT_OK;
}

static void abort_upload(weft_s3_upload *u)
{
    const weft_name_value query = {"uploadId", u->id};
    weft_error_copy *cause = weft_error_save();
    weft_http_reply reply;
    if (weft_s3_send(u->s3,
                     &(weft_s3_request){.method = "DELETE",
                                        .key = u->key,
                                        .query = &query,
                                        .query_count = 1,
                                        .uninterrupted = true},
                     &reply) == WEFT_OK)
        weft_http_reply_free(&reply);
    if (cause) /* the error that ended the upload stays the last one */
        (void)!weft_error_restore(cause);
    weft_free(cause);
}

void weft_s3_upload_free(weft_s3_upload *u)
{
    if (!u)
        return;
    for (int i = 0; i < WEFT_S3_PARTS_IN_FLIGHT; i++) {
        if (u->part[i].sending)
            (void)!join(u, &u->part[i]);
        weft_free(u->part[i].data);
    }
    if (u->id && !u->done)
        abort_upload(u);
    for (int i = 0; i < u->parts; i++)
        weft_free(u->etag[i]);
    weft_free(u->etag);
    weft_free(u->id);
    weft_free(u->key);
    weft_free(u);
}
