#include "storage/sigv4.h"

#include "base/config.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_PAIRS = 32 }; /* headers or query parameters of one request */

void weft_uri_encode(weft_buf *to, const char *text, bool slashes)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        const bool plain =
            (*p < 128 && isalnum(*p)) || strchr("-._~", *p) || (slashes && *p == '/');
        if (plain)
            weft_buf_append(to, p, 1);
        else
            weft_buf_printf(to, "%%%02X", *p);
    }
}

static int compare_names(const void *a, const void *b)
{
    const weft_name_value *x = a, *y = b;
    const int order = strcmp(x->name, y->name);
    return order ? order : strcmp(x->value, y->value);
}

static weft_status sort_pairs(const weft_name_value *pair, int count,
                              weft_name_value sorted[MOST_PAIRS])
{
    if (count > MOST_PAIRS)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(count)),
                          "a request has %d headers or parameters; the maximum is %d", count,
                          MOST_PAIRS);
    if (count)
        memcpy(sorted, pair, (size_t)count * sizeof *pair);
    qsort(sorted, (size_t)count, sizeof *sorted, compare_names);
    return WEFT_OK;
}

/* Parameters are sorted by their encoded names: '%' is before all letters and digits. */
weft_status weft_canonical_query(const weft_name_value *query, int count, weft_buf *to)
{
    weft_buf encoded[2 * MOST_PAIRS] = {0};
    weft_name_value sorted[MOST_PAIRS];
    if (count > MOST_PAIRS)
        return sort_pairs(query, count, sorted);
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < count; i++) {
        weft_buf *name = &encoded[2 * i], *value = &encoded[2 * i + 1];
        weft_buf_append(name, "", 0);
        weft_buf_append(value, "", 0);
        weft_uri_encode(name, query[i].name, false);
        weft_uri_encode(value, query[i].value, false);
        WEFT_GO(weft_buf_check(name->failed ? name : value));
        sorted[i] = (weft_name_value){name->data, value->data};
    }
    qsort(sorted, (size_t)count, sizeof *sorted, compare_names);
    for (int i = 0; i < count; i++)
        weft_buf_printf(to, "%s%s=%s", i ? "&" : "", sorted[i].name, sorted[i].value);
    WEFT_GO(weft_buf_check(to));
out:
    for (int i = 0; i < 2 * count; i++)
        weft_buf_free(&encoded[i]);
    return status;
}

/* Appends the value without outer spaces, and with one space in place of several. */
static void add_trimmed(weft_buf *to, const char *value)
{
    while (*value == ' ')
        value++;
    for (; *value; value++) {
        const bool dropped = *value == ' ' && (value[1] == ' ' || !value[1]);
        if (!dropped)
            weft_buf_append(to, value, 1);
    }
}

static void add_signed_headers(weft_buf *to, const weft_name_value *sorted, int count)
{
    for (int i = 0; i < count; i++)
        if (i == 0 || strcmp(sorted[i].name, sorted[i - 1].name) != 0)
            weft_buf_printf(to, "%s%s", i ? ";" : "", sorted[i].name);
}

weft_status weft_canonical_request(const weft_sigv4_request *r, weft_buf *to)
{
    weft_name_value sorted[MOST_PAIRS];
    WEFT_TRY(sort_pairs(r->header, r->header_count, sorted));
    weft_buf_printf(to, "%s\n%s\n", r->method, r->path);
    WEFT_TRY(weft_canonical_query(r->query, r->query_count, to));
    weft_buf_printf(to, "\n");
    for (int i = 0; i < r->header_count; i++) {
        weft_buf_printf(to, "%s:", sorted[i].name);
        add_trimmed(to, sorted[i].value);
        weft_buf_printf(to, "\n");
    }
    weft_buf_printf(to, "\n");
    add_signed_headers(to, sorted, r->header_count);
    weft_buf_printf(to, "\n%s", r->payload_hash);
    return weft_buf_check(to);
}

/* The key of one day, region and service. */
static weft_status signing_key(const weft_sigv4_keys *keys, const char *date,
                               uint8_t key[WEFT_SHA256_BYTES])
{
    const char *const steps[] = {keys->region, keys->service, "aws4_request"};
    weft_buf secret = {0};
    weft_buf_printf(&secret, "AWS4%s", keys->secret_key);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&secret));
    WEFT_GO(weft_hmac_sha256(secret.data, secret.len, date, 8, key));
    for (int i = 0; i < WEFT_COUNT(steps); i++) {
        uint8_t next[WEFT_SHA256_BYTES];
        WEFT_GO(
            weft_hmac_sha256(key, WEFT_SHA256_BYTES, steps[i], (int64_t)strlen(steps[i]), next));
        memcpy(key, next, sizeof next);
    }
out:
    if (secret.data)
        explicit_bzero(secret.data, (size_t)secret.len);
    weft_buf_free(&secret);
    return status;
}

weft_status weft_sigv4_authorization(const weft_sigv4_keys *keys, const weft_sigv4_request *request,
                                     weft_buf *to)
{
    weft_buf canonical = {0}, text = {0};
    weft_name_value sorted[MOST_PAIRS];
    uint8_t key[WEFT_SHA256_BYTES], mac[WEFT_SHA256_BYTES];
    char hash[WEFT_SHA256_HEX], signature[WEFT_SHA256_HEX];
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_canonical_request(request, &canonical));
    WEFT_GO(weft_sha256_hex(canonical.data, canonical.len, hash));
    weft_buf_printf(&text, "AWS4-HMAC-SHA256\n%s\n%.8s/%s/%s/aws4_request\n%s", request->date,
                    request->date, keys->region, keys->service, hash);
    WEFT_GO(weft_buf_check(&text));
    WEFT_GO(signing_key(keys, request->date, key));
    WEFT_GO(weft_hmac_sha256(key, sizeof key, text.data, text.len, mac));
    weft_sha256_to_hex(mac, signature);
    WEFT_GO(sort_pairs(request->header, request->header_count, sorted));
    weft_buf_printf(to, "AWS4-HMAC-SHA256 Credential=%s/%.8s/%s/%s/aws4_request, SignedHeaders=",
                    keys->access_key, request->date, keys->region, keys->service);
    add_signed_headers(to, sorted, request->header_count);
    weft_buf_printf(to, ", Signature=%s", signature);
    status = weft_buf_check(to);
out:
    explicit_bzero(key, sizeof key);
    weft_buf_free(&canonical);
    weft_buf_free(&text);
    return status;
}

void weft_sigv4_date(int64_t seconds, char date[17])
{
    const time_t time = (time_t)seconds;
    struct tm utc;
    gmtime_r(&time, &utc);
    strftime(date, 17, "%Y%m%dT%H%M%SZ", &utc);
}
