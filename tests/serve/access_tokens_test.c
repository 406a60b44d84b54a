/* Tokens and ranges of bytes. */
#include "serve/access_tokens.h"

#include <criterion/criterion.h>

#include "base/fs.h"
#include "serve/byte_range.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Test(access_tokens, a_created_token_is_admitted)
{
    char folder[] = "/tmp/weft-tokens-XXXXXX", token[64], other[64], header[128];
    cr_assert(mkdtemp(folder) != NULL);
    weft_access_tokens t = {0};
    const weft_token_limits none = {0}, some = {2, 90.5};
    cr_assert_eq(weft_access_tokens_read(folder, &t), WEFT_OK);
    cr_assert_eq(t.count, 0);
    cr_assert_eq(weft_access_tokens_create(folder, "a", &none, token), WEFT_OK);
    cr_assert_eq(weft_access_tokens_create(folder, "b.2", &none, other), WEFT_OK);
    cr_assert_eq(weft_access_tokens_create(folder, "a", &none, other), WEFT_E_ARG);
    cr_assert_eq(weft_error_class(), WEFT_MSG_SERVER_TOKEN);
    cr_assert_eq(weft_access_tokens_create(folder, "a b", &none, other), WEFT_E_ARG);
    cr_assert_eq(weft_access_tokens_create(folder, "", &none, other), WEFT_E_ARG);
    cr_assert_eq(weft_access_tokens_create(folder, "c", &some, other), WEFT_OK);
    cr_assert_eq(weft_access_tokens_read(folder, &t), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(t.count, 3);
    cr_assert_eq(weft_access_tokens_limits(&t, "a").jobs, 0);
    cr_assert_eq(weft_access_tokens_limits(&t, "c").jobs, 2);
    cr_assert_eq(weft_access_tokens_limits(&t, "c").seconds, 90.5);
    cr_assert_eq(weft_access_tokens_limits(&t, NULL).jobs, 0);
    snprintf(header, sizeof header, "Bearer %s", token);
    cr_assert(weft_access_tokens_name(&t, header));
    header[strlen(header) - 1] ^= 1;
    cr_assert(!weft_access_tokens_name(&t, header));
    cr_assert(!weft_access_tokens_name(&t, token));
    cr_assert(!weft_access_tokens_name(&t, "Bearer "));
    cr_assert(!weft_access_tokens_name(&t, NULL));
    weft_access_tokens_free(&t);
    char *path = weft_path_join(folder, "tokens"), *data;
    int64_t bytes;
    cr_assert_eq(weft_file_read(path, 1 << 20, &data, &bytes), WEFT_OK);
    cr_assert(!strstr(data, token), "the token is stored");
    weft_free(data);
    cr_assert_eq(weft_file_write_atomic(path, "a 12\n", 5), WEFT_OK);
    cr_assert_eq(weft_access_tokens_read(folder, &t), WEFT_E_ARG);
    cr_assert_eq(weft_error_fields()->line, 1);
    weft_access_tokens_free(&t);
    weft_free(path);
    cr_assert_eq(weft_remove_tree(folder), WEFT_OK);
}

static void range(const char *header, weft_range_kind kind, int64_t first, int64_t count)
{
    int64_t a, n;
    cr_assert_eq(weft_byte_range(header, 10, &a, &n), kind, "%s", header);
    if (kind == WEFT_RANGE_PART)
        cr_assert(a == first && n == count, "%s: %ld, %ld", header, (long)a, (long)n);
}

Test(byte_range, forms)
{
    range(NULL, WEFT_RANGE_WHOLE, 0, 0);
    range("bytes=2-5", WEFT_RANGE_PART, 2, 4);
    range("bytes=0-0", WEFT_RANGE_PART, 0, 1);
    range("bytes=7-", WEFT_RANGE_PART, 7, 3);
    range("bytes=7-99", WEFT_RANGE_PART, 7, 3);
    range("bytes=-3", WEFT_RANGE_PART, 7, 3);
    range("bytes=-99", WEFT_RANGE_PART, 0, 10);
    range("bytes=10-", WEFT_RANGE_OUTSIDE, 0, 0);
    range("bytes=-0", WEFT_RANGE_OUTSIDE, 0, 0);
    range("bytes=99999999999999999999999-", WEFT_RANGE_OUTSIDE, 0, 0);
    range("bytes=5-2", WEFT_RANGE_WHOLE, 0, 0);
    range("bytes=1-2,4-5", WEFT_RANGE_WHOLE, 0, 0);
    range("bytes=-", WEFT_RANGE_WHOLE, 0, 0);
    range("bytes=a-b", WEFT_RANGE_WHOLE, 0, 0);
    range("lines=1-2", WEFT_RANGE_WHOLE, 0, 0);
    int64_t a, n;
    cr_assert_eq(weft_byte_range("bytes=0-", 0, &a, &n), WEFT_RANGE_OUTSIDE);
}
