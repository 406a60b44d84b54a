#include "serve/page.h"

#include "base/hex.h"
#include "draw/html.h"
#include "storage/sha256.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* The document and its bytes, which the build writes. */
extern const unsigned char weft_page_document[];
extern const unsigned int weft_page_bytes;

static char policy[512];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Appends 'sha256-...' of the text between two marks of the document. */
static void add_hash(const char *directive, const char *open, const char *end)
{
    uint8_t digest[WEFT_SHA256_BYTES];
    char hex[WEFT_SHA256_HEX];
    weft_buf text = {0};
    const char *document = (const char *)weft_page_document, *from = strstr(document, open),
               *to = from ? strstr(from, end) : NULL;
    if (!to)
        return;
    from += strlen(open);
    if (weft_sha256_hex(from, to - from, hex) != WEFT_OK)
        return;
    weft_hex_read(hex, WEFT_SHA256_BYTES, digest);
    weft_base64(&text, digest, sizeof digest);
    const size_t used = strlen(policy);
    snprintf(policy + used, sizeof policy - used, "; %s 'sha256-%s'", directive,
             text.data ? text.data : "");
    weft_buf_free(&text);
}

/* Only this document's own script and style are run, so that a prompt cannot become a script. */
static void make_policy(void)
{
    strcpy(policy, "default-src 'none'; connect-src 'self'; img-src 'self' blob: data:; media-src "
                   "'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    add_hash("script-src", "<script>", "</script>");
    add_hash("style-src", "<style>", "</style>");
}

weft_serve_reply weft_page_get(void)
{
    weft_serve_reply reply = {.status = 200, .type = "text/html; charset=utf-8"};
    pthread_once(&once, make_policy);
    reply.policy = policy;
    weft_buf_append(&reply.text, weft_page_document, weft_page_bytes);
    if (reply.text.failed)
        reply.status = 500;
    return reply;
}
