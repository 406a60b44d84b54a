/* libcurl, loaded at run time: programs that read folders only do not load it. */
#ifndef WEFT_STORAGE_CURL_LIBRARY_H
#define WEFT_STORAGE_CURL_LIBRARY_H

#include "base/status.h"

#ifdef WEFT_HAS_CURL /* the build found the header */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

/* Functions of libcurl, without the prefix curl_. */
typedef struct weft_curl_library {
    void *(*easy_init)(void);
    void (*easy_cleanup)(void *easy);
    void (*easy_reset)(void *easy);
    CURLcode (*easy_setopt)(void *easy, CURLoption option, ...);
    CURLcode (*easy_perform)(void *easy);
    CURLcode (*easy_getinfo)(void *easy, CURLINFO info, ...);
    const char *(*easy_strerror)(CURLcode code);
    struct curl_slist *(*slist_append)(struct curl_slist *list, const char *text);
    void (*slist_free_all)(struct curl_slist *list);
} weft_curl_library;

/* The library of the process; it stays loaded. WEFT_E_UNSUPPORTED: it is not installed. */
weft_status weft_curl_library_load(const weft_curl_library **library);
#endif

#endif
