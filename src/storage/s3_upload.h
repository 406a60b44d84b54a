/* Writing an object: one PUT if it is small, else a multipart upload of parts that are sent by
 * several threads. The object is not visible before the commit, and an upload without one is
 * aborted. */
#ifndef WEFT_STORAGE_S3_UPLOAD_H
#define WEFT_STORAGE_S3_UPLOAD_H

#include "storage/remote_facts.h"
#include "storage/s3.h"

enum {
    WEFT_S3_PART_BYTES = 16 << 20, /* equal parts: some servers accept no others */
    WEFT_S3_PARTS_IN_FLIGHT = 4,   /* memory of a file being written: one part for each */
    WEFT_S3_MOST_PARTS = 10000
};

typedef struct weft_s3_upload weft_s3_upload;
/* Sends nothing yet. */
weft_status weft_s3_upload_begin(weft_s3 *s3, const char *key, weft_s3_upload **upload);
weft_status weft_s3_upload_write(weft_s3_upload *upload, const void *data, int64_t bytes);
/* *bytes and `etag`: of the object. The ETag of an object of several parts is "": the reply of
 * rclone has another ETag than later requests. */
weft_status weft_s3_upload_commit(weft_s3_upload *upload, int64_t *bytes,
                                  char etag[WEFT_ETAG_BYTES]);
void weft_s3_upload_free(weft_s3_upload *upload); /* aborts without a commit */

#endif
