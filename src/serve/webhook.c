#include "serve/webhook.h"

#include "base/fs.h"
#include "draw/html.h"
#include "storage/sha256.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <unistd.h>

enum { KEY_BYTES = 32 };
static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char prefix[] = "whsec_";

/* Appends base64 to a text of `size` bytes. */
static weft_status append_base64(const uint8_t *data, int64_t bytes, char *text, size_t size)
{
    weft_buf out = {0};
    const size_t used = strlen(text);
    weft_status_code status = WEFT_OK;
    weft_base64(&out, data, bytes);
    WEFT_GO(weft_buf_check(&out));
    snprintf(text + used, size - used, "%s", out.data);
out:
    weft_buf_free(&out);
    return status;
}

/* Reads base64 of exactly `bytes` bytes. */
static bool read_base64(const char *text, uint8_t *data, int64_t bytes)
{
    uint32_t group = 0;
    int64_t count = 0;
    int bits = 0;
    for (; *text && *text != '='; text++) {
        const char *digit = strchr(digits, *text);
        if (!digit)
            return false;
        group = group << 6 | (uint32_t)(digit - digits);
        bits += 6;
        if (bits < 8)
            continue;
        bits -= 8;
        if (count == bytes)
            return false;
        data[count++] = (uint8_t)(group >> bits);
    }
    return count == bytes && strspn(text, "=") == strlen(text);
}

weft_status weft_webhook_sign(const char *secret, const weft_webhook_message *m,
                              char signature[WEFT_WEBHOOK_SIGNATURE])
{
    uint8_t key[KEY_BYTES], mac[WEFT_SHA256_BYTES];
    weft_buf text = {0};
    if (strncmp(secret, prefix, strlen(prefix)) != 0 ||
        !read_base64(secret + strlen(prefix), key, KEY_BYTES))
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_NOWHERE,
                          "the secret is not whsec_ and %d bytes in base64", KEY_BYTES);
    weft_buf_printf(&text, "%s.%" PRId64 ".%s", m->id, m->time, m->body);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&text));
    WEFT_GO(weft_hmac_sha256(key, KEY_BYTES, text.data, text.len, mac));
    strcpy(signature, "v1,");
    WEFT_GO(append_base64(mac, WEFT_SHA256_BYTES, signature, WEFT_WEBHOOK_SIGNATURE));
out:
    weft_buf_free(&text);
    return status;
}

double weft_webhook_delay(int failures)
{
    double seconds = 1;
    for (int i = 1; i < failures; i++)
        seconds *= 5;
    return seconds < 21600 ? seconds : 21600;
}

/* The secret suffices to forge messages, so that no other user may read the file. */
static weft_status write_private(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const ssize_t bytes = (ssize_t)strlen(text);
    weft_status_code status = WEFT_OK;
    if (fd < 0 || write(fd, text, (size_t)bytes) != bytes || fsync(fd) != 0)
        status = weft_error_errno(WEFT_AT(.file = path), "cannot write the secret of webhooks");
    if (fd >= 0)
        close(fd);
    if (fd >= 0 && status != WEFT_OK)
        unlink(path);
    return status;
}

static weft_status create_secret(const char *path, char secret[WEFT_WEBHOOK_SECRET])
{
    uint8_t key[KEY_BYTES];
    if (getrandom(key, sizeof key, 0) != sizeof key)
        return weft_error_errno(WEFT_NOWHERE, "the system gives no random bytes");
    strcpy(secret, prefix);
    WEFT_TRY(append_base64(key, sizeof key, secret, WEFT_WEBHOOK_SECRET));
    return write_private(path, secret);
}

weft_status weft_webhook_secret(const char *state, char secret[WEFT_WEBHOOK_SECRET])
{
    char *path = weft_path_join(state, "webhook-secret"), *data = NULL,
         signature[WEFT_WEBHOOK_SIGNATURE];
    int64_t bytes;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(path, "a secret"));
    if (!weft_path_exists(path)) {
        WEFT_GO(create_secret(path, secret));
    } else {
        WEFT_GO(weft_file_read(path, 4096, &data, &bytes));
        snprintf(secret, WEFT_WEBHOOK_SECRET, "%.*s", (int)strcspn(data, "\r\n"), data);
        WEFT_GO(weft_webhook_sign(secret, &(weft_webhook_message){"", 0, ""}, signature));
    }
out:
    if (status == WEFT_E_FORMAT)
        status = weft_error_at(status, WEFT_AT(.file = path));
    weft_free(data);
    weft_free(path);
    return status;
}

/* Bytes of scheme, host and port; 0: not a URL of http or https. */
static size_t origin_length(const char *url)
{
    const size_t scheme = !strncasecmp(url, "https://", 8)  ? 8
                          : !strncasecmp(url, "http://", 7) ? 7
                                                            : 0,
                 host = strcspn(url + scheme, "/?#");
    return scheme && host ? scheme + host : 0;
}

bool weft_webhook_is_allowed(const char *url, const char *const *allowed, int count)
{
    const size_t length = origin_length(url);
    for (const char *at = url; *at; at++)
        if ((unsigned char)*at <= ' ' || (unsigned char)*at >= 0x7f || *at == '\\')
            return false;
    if (!length || memchr(url, '@', length) || strstr(url, "/../") || strchr(url, '#'))
        return false;
    for (int i = 0; i < count; i++) {
        const size_t all = strlen(allowed[i]);
        /* "https://a.org" is not a prefix of "https://a.org.example" */
        if (origin_length(allowed[i]) == length && !strncmp(url, allowed[i], all) &&
            (all == length || allowed[i][all - 1] == '/' || !url[all] || strchr("/?", url[all])))
            return true;
    }
    return false;
}
