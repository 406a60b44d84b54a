#ifndef WEFT_STORAGE_STORAGE_S3_H
#define WEFT_STORAGE_STORAGE_S3_H

#include "storage/storage.h"

/* s3://BUCKET/PREFIX, in storage_s3.c. */
extern const weft_storage_kind weft_storage_s3;

#endif
