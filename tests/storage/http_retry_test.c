/* Delays of repeated requests, and values of replies. */
#include "base/config.h"
#include "storage/http_retry.h"
#include "storage/remote_facts.h"
#include "storage/s3_xml.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

Test(http_retry, transient_failures)
{
    static const int passing[] = {0, 408, 429, 500, 502, 503, 504},
                     final[] = {200, 206, 301, 400, 403, 404, 412, 416, 501};
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        cr_expect(weft_http_is_transient(passing[i]), "%d", passing[i]);
    for (size_t i = 0; i < sizeof final / sizeof *final; i++)
        cr_expect(!weft_http_is_transient(final[i]), "%d", final[i]);
}

Test(http_retry, delays_double_up_to_a_maximum)
{
    for (int failures = 1; failures < 40; failures++) {
        int64_t most = WEFT_HTTP_RETRY_FIRST_MS << (failures < 12 ? failures - 1 : 11);
        most = most < WEFT_HTTP_RETRY_MOST_MS ? most : WEFT_HTTP_RETRY_MOST_MS;
        cr_expect_eq(weft_http_retry_ms(failures, 0, "", 0), most / 2);
        const int64_t longest = weft_http_retry_ms(failures, 0.999999, NULL, 0);
        cr_expect(longest > most * 9 / 10 && longest <= most, "%d", failures);
    }
}

Test(http_retry, servers_ask_for_a_delay)
{
    cr_assert_eq(weft_http_retry_ms(1, 0, "3", 0), 3050);
    cr_assert_eq(weft_http_retry_ms(1, 0, "86400", 0), WEFT_HTTP_RETRY_AFTER_MS + 50);
    cr_assert_eq(weft_http_retry_ms(1, 0, "-5", 0), 50);
    cr_assert_eq(weft_http_retry_ms(1, 0, "soon", 0), 50);
    cr_assert_eq(weft_http_retry_ms(1, 0, "Fri, 24 May 2013 00:00:07 GMT", 1369353600), 7050);
    cr_assert_eq(weft_http_retry_ms(1, 0, "Fri, 24 May 2013 00:00:07 GMT", 1369353700), 50);
}

/* Each beginning of a reply that is shorter than the reply is cut; an empty one is not XML. */
Test(s3_xml, cut_replies_are_found)
{
    static const char *const whole[] = {"<?xml version=\"1.0\"?>\n<L x=\"1\"><K>L</K></L>",
                                        " \n<!-- x --><Lists><List>a</List></Lists>\r\n", "<L/>",
                                        "<L a=\"b\" />"};
    for (int i = 0; i < WEFT_COUNT(whole); i++) {
        const char *first = strchr(whole[i], '<'), *last = strrchr(whole[i], '>');
        cr_expect(!weft_xml_is_cut(whole[i]), "%s", whole[i]);
        for (const char *end = first + 1; end <= last; end++) {
            char part[128];
            snprintf(part, sizeof part, "%.*s", (int)(end - whole[i]), whole[i]);
            cr_expect(weft_xml_is_cut(part), "%s", part);
        }
    }
    cr_expect(!weft_xml_is_cut(NULL) && !weft_xml_is_cut("") && !weft_xml_is_cut("no XML"));
}

Test(s3_xml, elements_and_entities)
{
    static const char xml[] = "<?xml version=\"1.0\"?><A xmlns=\"x\"><Keys>no</Keys><Key>a&amp;b"
                              "&#x1F600;&#252;&lt;&bad;</Key><E/><Key>second</Key></A>";
    char text[64];
    int64_t bytes;
    cr_assert_str_eq(weft_xml_text(xml, "Key", text, sizeof text),
                     "a&b\xf0\x9f\x98\x80\xc3\xbc<&bad;");
    const char *first = weft_xml_find(xml, "Key", &bytes);
    cr_assert_str_eq(weft_xml_text(first + bytes, "Key", text, sizeof text), "second");
    cr_assert_str_eq(weft_xml_text(xml, "None", text, sizeof text), "");
    cr_assert_str_eq(weft_xml_text(xml, "E", text, sizeof text), "");
    cr_assert_str_eq(weft_xml_text("<Key>cut", "Key", text, sizeof text), "");
    cr_assert_str_eq(weft_xml_text("<Key", "Key", text, sizeof text), "");
    char uri[] = "a%20b%2Bc+d%zz%4";
    cr_assert_eq(weft_uri_decode(uri, (int64_t)strlen(uri)), 12);
    cr_assert_str_eq(uri, "a b+c d%zz%4");
}

Test(remote_facts, a_table_of_names)
{
    weft_remote_table table;
    weft_storage_facts facts, other;
    char etag[WEFT_ETAG_BYTES];
    weft_remote_table_init(&table);
    static const char *const names[] = {"m", "c", "x", "a", "d"};
    for (int i = 0; i < 5; i++)
        cr_assert_eq(weft_remote_table_put(&table, names[i], "\"1\"", i), WEFT_OK);
    for (int i = 0; i < 5; i++) {
        cr_assert(weft_remote_table_get(&table, names[i], etag, &facts));
        cr_assert_eq(facts.bytes, i);
    }
    cr_assert(!weft_remote_table_get(&table, "b", NULL, &facts));
    cr_assert_eq(weft_remote_table_put(&table, "d", "\"2\"", 4), WEFT_OK);
    cr_assert(weft_remote_table_get(&table, "d", etag, &other));
    cr_assert_str_eq(etag, "\"2\"");
    cr_assert(weft_remote_table_get(&table, "d", NULL, &facts) && facts.stamp == other.stamp);
    weft_remote_table_drop(&table, "c");
    cr_assert(!weft_remote_table_get(&table, "c", NULL, &facts));
    cr_assert(weft_remote_table_get(&table, "x", NULL, &facts));
    weft_remote_table_free(&table);
}

static const char *etag_of(const weft_http_reply *reply)
{
    return reply->etag;
}

/* A reply has the range at 5 of 5 bytes, or the whole file of 5 bytes. `kept`: of an earlier reply,
 * so that this one has the rest. */
static weft_status_code check_reply(int64_t at, int64_t kept, int status, const char *content_range,
                                    int64_t received, const char *version, int64_t length)
{
    const weft_remote_range of = {"https://host/path", "a.tar", "\"v1\"", at ? 100 : 5, etag_of};
    weft_http_range range = weft_remote_range_of(&of, at, 5);
    weft_http_reply reply = {.status = status, .received = received, .length = length};
    range.kept = kept;
    snprintf(reply.content_range, sizeof reply.content_range, "%s", content_range);
    snprintf(reply.etag, sizeof reply.etag, "%s", version);
    return weft_remote_range_check(&range, &reply);
}

static weft_status_code check_rest(int64_t at, int64_t kept, int status, const char *content_range,
                                   int64_t received, const char *version)
{
    return check_reply(at, kept, status, content_range, received, version, -1);
}

static weft_status_code check_range(int64_t at, int status, const char *content_range,
                                    int64_t received, const char *version)
{
    return check_rest(at, 0, status, content_range, received, version);
}

Test(remote_facts, rest_of_a_range)
{
    cr_expect_eq(check_rest(5, 2, 206, "bytes 7-9/100", 5, "\"v1\""), WEFT_OK);
    cr_expect_neq(check_rest(5, 2, 206, "bytes 5-9/100", 5, "\"v1\""), WEFT_OK, "all again");
    cr_expect_neq(check_rest(5, 2, 206, "bytes 7-9/100", 3, "\"v1\""), WEFT_OK, "too few");
    cr_expect_neq(check_rest(0, 2, 200, "", 5, "\"v1\""), WEFT_OK, "the whole file");
    cr_expect_neq(check_rest(5, 2, 206, "bytes 7-9/100", 5, "\"v2\""), WEFT_OK);
    cr_expect_eq(weft_error_class(), WEFT_MSG_FILE_CHANGED);
}

/* New bytes with the ETag of the old ones: the size shows that the file changed. */
Test(remote_facts, sizes_of_replies)
{
    static const struct {
        int64_t at;
        int status;
        const char *content_range;
        int64_t length;
    } changed[] = {{5, 206, "bytes 5-9/101", 5}, /* longer */
                   {5, 206, "bytes 5-7/8", 3},   /* shorter */
                   {0, 206, "bytes 0-3/4", 4},
                   {0, 200, "", 6},
                   {0, 200, "", 4}};
    for (int i = 0; i < (int)(sizeof changed / sizeof *changed); i++) {
        cr_expect_neq(check_reply(changed[i].at, 0, changed[i].status, changed[i].content_range, 5,
                                  "\"v1\"", changed[i].length),
                      WEFT_OK, "reply %d", i);
        cr_expect_eq(weft_error_class(), WEFT_MSG_FILE_CHANGED, "reply %d", i);
    }
    cr_expect_eq(check_reply(0, 0, 200, "", 5, "\"v1\"", 5), WEFT_OK);
    cr_expect_eq(check_reply(5, 0, 206, "bytes 5-9/*", 5, "\"v1\"", 5), WEFT_OK, "not told");
}

Test(remote_facts, ranges_of_replies)
{
    cr_expect_eq(check_range(5, 206, "bytes 5-9/100", 5, "\"v1\""), WEFT_OK);
    cr_expect_eq(check_range(5, 206, "bytes 5-9/100", 5, ""), WEFT_OK,
                 "the server has no versions");
    cr_expect_eq(check_range(0, 200, "", 5, "\"v1\""), WEFT_OK, "the whole file");
    cr_expect_neq(check_range(5, 206, "bytes 5-9/100", 5, "\"v2\""), WEFT_OK);
    cr_expect_eq(weft_error_class(), WEFT_MSG_FILE_CHANGED);
    static const struct {
        int64_t at;
        int status;
        const char *content_range;
        int64_t received;
    } wrong[] = {{5, 206, "bytes 5-8/100", 5}, /* another end */
                 {5, 206, "bytes 4-8/100", 5}, /* another begin */
                 {5, 206, "bytes 5-9/100", 4}, /* cut */
                 {5, 206, "", 5},
                 {5, 200, "", 5},  /* the whole file, but a part is needed */
                 {0, 206, "", 5}}; /* a part, which one is unknown */
    for (int i = 0; i < (int)(sizeof wrong / sizeof *wrong); i++) {
        cr_expect_neq(check_range(wrong[i].at, wrong[i].status, wrong[i].content_range,
                                  wrong[i].received, ""),
                      WEFT_OK, "reply %d", i);
        cr_expect_eq(weft_error_class(), WEFT_MSG_STORAGE_REQUEST, "reply %d", i);
    }
}
