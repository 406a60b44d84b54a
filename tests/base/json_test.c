/* JSON lines: in order, errors with their line. */
#include "base/fs.h"
#include "base/json.h"

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
