#include "storage/curl_library.h"

#ifdef WEFT_HAS_CURL
#include <dlfcn.h>
#include <pthread.h>

static struct {
    pthread_once_t once;
    weft_curl_library functions;
    bool loaded;
} curl = {.once = PTHREAD_ONCE_INIT};

static void load(void)
{
    void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        library = dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return;
    weft_curl_library *f = &curl.functions;
    CURLcode (*global_init)(long flags);
    const struct {
        const char *name;
        void **to;
    } names[] = {{"curl_global_init", (void **)&global_init},
                 {"curl_easy_init", (void **)&f->easy_init},
                 {"curl_easy_cleanup", (void **)&f->easy_cleanup},
                 {"curl_easy_reset", (void **)&f->easy_reset},
                 {"curl_easy_setopt", (void **)&f->easy_setopt},
                 {"curl_easy_perform", (void **)&f->easy_perform},
                 {"curl_easy_getinfo", (void **)&f->easy_getinfo},
                 {"curl_easy_strerror", (void **)&f->easy_strerror},
                 {"curl_slist_append", (void **)&f->slist_append},
                 {"curl_slist_free_all", (void **)&f->slist_free_all}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!(*names[i].to = dlsym(library, names[i].name)))
            return;
    curl.loaded = global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

weft_status weft_curl_library_load(const weft_curl_library **library)
{
    pthread_once(&curl.once, load);
    if (!curl.loaded)
        return weft_error(WEFT_MSG_LIBRARY_MISSING, WEFT_AT(.file = "libcurl.so.4"),
                          "libcurl cannot be loaded, and buckets and servers need it. Install "
                          "libcurl4.");
    *library = &curl.functions;
    return WEFT_OK;
}
#endif
