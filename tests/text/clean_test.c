/* Cleaning of prompts: repaired texts, and texts that stay unchanged. */
#include "text/clean.h"

#include <criterion/criterion.h>
#include <string.h>

static void becomes(const char *text, bool repair, const char *want)
{
    weft_buf out = {0};
    cr_assert_eq(weft_text_clean_prompt(text, (int64_t)strlen(text), repair, &out), WEFT_OK);
    cr_expect_str_eq(out.data, want, "\"%s\" became \"%s\"", text, out.data);
    weft_buf_free(&out);
}

Test(clean, white_space_and_entities)
{
    becomes("", true, "");
    becomes(" \t a \n\xc2\xa0 b\x1f", true, "a b");
    becomes("&amp;lt;x&amp;gt;", true, "<x>");
    becomes("&ampx &notit; &#65;&#x42;&bogus;", false, "&x \u00acit; AB&bogus;");
    becomes("&#x80; &#0; &#xd800;", false, "\u20ac \ufffd \ufffd");
    becomes("5 < 6 & 7", true, "5 < 6 & 7");
    becomes("&#18446744073709551681; &#4294967361;", false,
            "\ufffd \ufffd"); /* 2^64 + 65, 2^32 + 65 */
}

Test(clean, damage)
{
    becomes("sch\u00c3\u00b6n", true, "sch\u00f6n");         /* UTF-8 read as Latin-1 */
    becomes("\u00d0\u2013", true, "\u0416");                 /* as Windows-1252 */
    becomes("\u2019a\u00c3\u00a9\u2019", true, "'a\u00e9'"); /* amid other letters */
    becomes("\u201cq\u201d \ufb01t \uff21", true, "\"q\" fit A");
    becomes("\x1b[1mbold\x1b[0m \x07", true, "bold");
    becomes("a\xff", true, "a\ufffd"); /* no UTF-8 at all */
    becomes("sch\u00c3\u00b6n", false, "sch\u00c3\u00b6n");
    becomes("\u00e9t\u00e9 \u4e00\u53ea \u0412\u0441\u0451", true,
            "\u00e9t\u00e9 \u4e00\u53ea \u0412\u0441\u0451"); /* nothing is wrong */
}

Test(clean, lower)
{
    weft_buf out = {0};
    const char text[] = "  A Red  \u00c9t\u00c9 ";
    weft_text_clean_lower(text, (int64_t)strlen(text), &out);
    cr_expect_str_eq(out.data, "a red \u00e9t\u00e9");
    weft_buf_free(&out);
}
