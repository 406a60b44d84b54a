/* JSON lines: in order, errors with their line. */
#include "base/fs.h"
#include "base/json_foreign.h"

#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

static weft_status_code add(void *user, json_t *value)
{
    int64_t *sum = user, n;
    WEFT_TRY(weft_json_get_i64(value, "n", "line", &n));
    *sum = *sum * 10 + n;
    return WEFT_OK;
}

static weft_status_code read_lines(const char *text, int64_t *sum)
{
    char path[] = "/tmp/weft-json-XXXXXX";
    const int file = mkstemp(path);
    cr_assert(file >= 0);
    cr_assert_eq(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
    *sum = 0;
    const weft_status_code status = weft_json_lines(path, add, sum);
    unlink(path);
    return status;
}

Test(json, lines_are_read_in_order_and_the_last_need_not_end)
{
    int64_t sum;
    cr_assert_eq(read_lines("{\"n\":1}\n\n{\"n\":2}\r\n{\"n\":3}", &sum), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(sum, 123);
    cr_assert_eq(read_lines("", &sum), WEFT_OK);
    cr_assert_eq(sum, 0);
}

Test(json, an_error_names_its_line)
{
    int64_t sum;
    cr_assert_eq(read_lines("{\"n\":1}\n\n{\"n\":2\n{\"n\":3}\n", &sum), WEFT_E_FORMAT);
    cr_assert_eq(weft_error_class(), WEFT_MSG_JSON_SYNTAX);
    cr_assert_eq(weft_error_fields()->line, 3);
    cr_assert_eq(sum, 1);
    cr_assert_eq(read_lines("{\"n\":1}\n{\"m\":2}\n{\"n\":3}\n", &sum), WEFT_E_FORMAT);
    cr_assert_eq(sum, 1);
}

static weft_status check_foreign(const char *text, const char *prefix)
{
    static const weft_json_field known[] = {
        {"r", NULL}, {"mode", "[1, \"a\"]"}, {"_class_name", "[\"A\"]"}, {NULL, NULL}};
    json_t *json;
    cr_assert_eq(weft_json_parse(text, (int64_t)strlen(text), "test", &json), WEFT_OK);
    const weft_status_code status =
        weft_json_check_foreign(json, "x.json", prefix, known, WEFT_MSG_MODEL_CONFIG_UNSUPPORTED);
    json_decref(json);
    return status;
}

static void expect_foreign(const char *text, const char *prefix, const char *key, const char *value)
{
    cr_assert_eq(check_foreign(text, prefix), WEFT_E_UNSUPPORTED, "%s is accepted", text);
    cr_assert_eq(weft_error_class(), WEFT_MSG_MODEL_CONFIG_UNSUPPORTED);
    cr_assert_str_eq(weft_error_fields()->file, "x.json");
    cr_assert_str_eq(weft_error_fields()->key, key);
    cr_assert_str_eq(weft_error_fields()->value, value);
}

Test(json, fields_of_another_program_are_known_or_off)
{
    static const char *const accepted[] = {
        "{}", "{\"r\": [3], \"mode\": 1.0, \"_class_name\": \"A\", \"_other\": 5}",
        "{\"mode\": null, \"new\": null, \"other\": false, \"third\": [], \"fourth\": {}}",
        "{\"mode\": \"a\", \"new\": \"\"}"};
    for (int i = 0; i < 4; i++)
        cr_assert_eq(check_foreign(accepted[i], ""), WEFT_OK, "%s", weft_error_message());
    expect_foreign("{\"r\": 2, \"new\": true}", "", "new", "true");
    expect_foreign("{\"new\": 0}", "", "new", "0");
    expect_foreign("{\"mode\": 1.01}", "", "mode", "1.01");
    expect_foreign("{\"mode\": false}", "", "mode", "false");
    expect_foreign("{\"_class_name\": \"B\"}", "", "_class_name", "\"B\"");
    cr_assert_eq(check_foreign("{\"new\": 1, \"net.r\": 2}", "net."), WEFT_OK);
    expect_foreign("{\"net.new\": 1}", "net.", "new", "1");
}
