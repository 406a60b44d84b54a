/* Requests to servers with an API in JSON. */
#ifndef WEFT_STORAGE_HTTP_API_H
#define WEFT_STORAGE_HTTP_API_H

#include "storage/http.h"

enum { WEFT_HTTP_API_ERROR = 300 }; /* bytes of the text of an error */

/* Checks a URL of a config, whose key is `url_key`. `key_key` is the config key that names the
 * variable of the server's key. */
weft_status weft_http_api_check_url(const char *url, const char *url_key, const char *key_key);
/* *url (heap): `path` below the URL `base`, which may end with slashes. */
weft_status weft_http_api_url(const char *base, const char *path, char **url);
/* Adds the headers of a JSON request, with `key` as bearer token. NULL or "": no key. */
weft_status weft_http_api_headers(weft_http_headers *headers, const char *key);
/* Replaces the key, which a server may repeat, by asterisks of the same length. NULL or "": no key.
 */
void weft_http_api_hide_key(const char *key, char *text);
/* Writes the status and the server's message of an error, without the key. */
void weft_http_api_describe(const weft_http_reply *reply, const char *key,
                            char to[WEFT_HTTP_API_ERROR]);

#endif
