/* Signatures: vectors of AWS's signing test suite (aws-c-auth, Apache-2.0), and the examples of the
 * Amazon S3 API reference, "Authorization header". */
#include "storage/sigv4.h"

#include "base/config.h"

#include <criterion/criterion.h>
#include <string.h>

#define EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

typedef struct vector {
    const char *name, *method, *path;
    weft_name_value query[4], header[6];
    const char *payload_hash, *signed_headers, *signature;
} vector;

static int pairs(const weft_name_value *pair, int most)
{
    int count = 0;
    while (count < most && pair[count].name)
        count++;
    return count;
}

static void check(const weft_sigv4_keys *keys, const char *date, const vector *v)
{
    const weft_sigv4_request request = {.method = v->method,
                                        .path = v->path,
                                        .query = v->query,
                                        .query_count = pairs(v->query, 4),
                                        .header = v->header,
                                        .header_count = pairs(v->header, 6),
                                        .payload_hash = v->payload_hash,
                                        .date = date};
    weft_buf got = {0}, want = {0}, canonical = {0};
    cr_assert_eq(weft_sigv4_authorization(keys, &request, &got), WEFT_OK);
    weft_buf_printf(&want,
                    "AWS4-HMAC-SHA256 Credential=%s/%.8s/%s/%s/aws4_request, SignedHeaders=%s, "
                    "Signature=%s",
                    keys->access_key, date, keys->region, keys->service, v->signed_headers,
                    v->signature);
    cr_assert_eq(weft_canonical_request(&request, &canonical), WEFT_OK);
    cr_expect_str_eq(got.data, want.data, "%s:\n%s", v->name, canonical.data);
    weft_buf_free(&got);
    weft_buf_free(&want);
    weft_buf_free(&canonical);
}

#define SUITE_HOST                                                                                 \
    {                                                                                              \
        "host", "example.amazonaws.com"                                                            \
    }
#define SUITE_DATE                                                                                 \
    {                                                                                              \
        "x-amz-date", "20150830T123600Z"                                                           \
    }

Test(sigv4, vectors_of_the_signing_suite)
{
    static const weft_sigv4_keys keys = {"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                                         "us-east-1", "service"};
    static const char form_hash[] =
        "9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e";
    static const char token[] = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267";
    static const vector vectors[] = {
        {"get-vanilla",
         "GET",
         "/",
         {{0}},
         {SUITE_HOST, SUITE_DATE},
         EMPTY_HASH,
         "host;x-amz-date",
         "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
        {"get-vanilla-query-order-key-case",
         "GET",
         "/",
         {{"Param2", "value2"}, {"Param1", "value1"}},
         {SUITE_HOST, SUITE_DATE},
         EMPTY_HASH,
         "host;x-amz-date",
         "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
        {"get-vanilla-query-order-encoded",
         "GET",
         "/",
         {{"Param-3", "Value3"}, {"Param", "Value2"}, {"\xe1\x88\xb4", "Value1"}},
         {SUITE_HOST, SUITE_DATE},
         EMPTY_HASH,
         "host;x-amz-date",
         "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac"},
        {"get-vanilla-utf8-query",
         "GET",
         "/",
         {{"\xe1\x88\xb4", "bar"}},
         {SUITE_HOST, SUITE_DATE},
         EMPTY_HASH,
         "host;x-amz-date",
         "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
        {"get-utf8",
         "GET",
         "/%E1%88%B4",
         {{0}},
         {SUITE_HOST, SUITE_DATE},
         EMPTY_HASH,
         "host;x-amz-date",
         "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
        {"get-header-value-trim",
         "GET",
         "/",
         {{0}},
         {{"my-header1", " value1"}, {"my-header2", " \"a   b   c\""}, SUITE_HOST, SUITE_DATE},
         EMPTY_HASH,
         "host;my-header1;my-header2;x-amz-date",
         "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
        {"get-slashes-unnormalized",
         "GET",
         "//example//",
         {{0}},
         {SUITE_HOST, SUITE_DATE},
         EMPTY_HASH,
         "host;x-amz-date",
         "87cca117541a147f6df867677d98a7d80dff226d2bfca9e4ffa899665623c7e5"},
        {"get-vanilla-with-session-token",
         "GET",
         "/",
         {{0}},
         {SUITE_HOST, SUITE_DATE, {"x-amz-security-token", token}},
         EMPTY_HASH,
         "host;x-amz-date;x-amz-security-token",
         "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8"},
        {"post-x-www-form-urlencoded",
         "POST",
         "/",
         {{0}},
         {SUITE_HOST,
          SUITE_DATE,
          {"content-type", "application/x-www-form-urlencoded"},
          {"content-length", "13"},
          {"x-amz-content-sha256", form_hash}},
         form_hash,
         "content-length;content-type;host;x-amz-content-sha256;x-amz-date",
         "d3875051da38690788ef43de4db0d8f280229d82040bfac253562e56c3f20e0b"},
    };
    for (int i = 0; i < WEFT_COUNT(vectors); i++)
        check(&keys, "20150830T123600Z", &vectors[i]);
}

#define S3_HOST                                                                                    \
    {                                                                                              \
        "host", "examplebucket.s3.amazonaws.com"                                                   \
    }
#define S3_DATE                                                                                    \
    {                                                                                              \
        "x-amz-date", "20130524T000000Z"                                                           \
    }
#define S3_EMPTY                                                                                   \
    {                                                                                              \
        "x-amz-content-sha256", EMPTY_HASH                                                         \
    }

Test(sigv4, examples_of_the_s3_reference)
{
    static const weft_sigv4_keys keys = {
        "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1", "s3"};
    static const char put_hash[] =
        "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    static const vector vectors[] = {
        {"GET object, a range",
         "GET",
         "/test.txt",
         {{0}},
         {S3_HOST, S3_DATE, S3_EMPTY, {"range", "bytes=0-9"}},
         EMPTY_HASH,
         "host;range;x-amz-content-sha256;x-amz-date",
         "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
        {"PUT object",
         "PUT",
         "/test%24file.text",
         {{0}},
         {S3_HOST,
          S3_DATE,
          {"date", "Fri, 24 May 2013 00:00:00 GMT"},
          {"x-amz-content-sha256", put_hash},
          {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
         put_hash,
         "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
         "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
        {"GET lifecycle, a parameter without a value",
         "GET",
         "/",
         {{"lifecycle", ""}},
         {S3_HOST, S3_DATE, S3_EMPTY},
         EMPTY_HASH,
         "host;x-amz-content-sha256;x-amz-date",
         "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
        {"list objects",
         "GET",
         "/",
         {{"prefix", "J"}, {"max-keys", "2"}},
         {S3_HOST, S3_DATE, S3_EMPTY},
         EMPTY_HASH,
         "host;x-amz-content-sha256;x-amz-date",
         "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
    };
    for (int i = 0; i < WEFT_COUNT(vectors); i++)
        check(&keys, "20130524T000000Z", &vectors[i]);
}

Test(sigv4, every_byte_of_a_key_is_encoded_once)
{
    weft_buf to = {0};
    weft_uri_encode(&to, "a/b c+=&%?#@:\"~*'()!\n\xf0\x9f\x98\x80", true);
    cr_assert_str_eq(to.data, "a/b%20c%2B%3D%26%25%3F%23%40%3A%22~%2A%27%28%29%21%0A%F0%9F%98%80");
    weft_buf_free(&to);
    weft_uri_encode(&to, "a/b", false);
    cr_assert_str_eq(to.data, "a%2Fb");
    weft_buf_free(&to);
}

Test(sigv4, date_of_seconds)
{
    char date[17];
    weft_sigv4_date(1440938160, date);
    cr_assert_str_eq(date, "20150830T123600Z");
    weft_sigv4_date(0, date);
    cr_assert_str_eq(date, "19700101T000000Z");
}
