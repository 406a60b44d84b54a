#ifndef WEFT_STORAGE_STORAGE_HTTP_H
#define WEFT_STORAGE_STORAGE_HTTP_H

#include "storage/storage.h"

/* http://HOST/PATH and https://HOST/PATH, read only, in storage_http.c. */
extern const weft_storage_kind weft_storage_http, weft_storage_https;

#endif
