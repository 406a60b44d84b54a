/* Quoted parts of prompts, compared with the pattern "(.*?)" or curly marks of the reference. */
#include "text/quoted_text.h"

#include <criterion/criterion.h>

Test(quoted_text, parts_of_a_prompt)
{
    static const struct {
        const char *text, *expected;
    } known[] = {
        {"a cat", NULL},
        {"", NULL},
        {"one \" mark", NULL},
        {"says \"hi\"", "Text \"hi\". "},
        {"\"a\" \xe2\x80\x9c"
         "b\xe2\x80\x9d \"a\"",
         "Text \"a\". Text \"b\". "},
        {"\xe2\x80\x9c"
         "open \"c\"",
         "Text \"c\". "},
        {"\"two\nlines\" \"d\"", "Text \" \". "},
        {"\"\"", "Text \"\". "},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        weft_buf out = {0};
        const bool found = weft_text_quoted(known[i].text, &out);
        cr_expect_eq(found, known[i].expected != NULL, "%s", known[i].text);
        if (known[i].expected)
            cr_expect_str_eq(out.data, known[i].expected, "%s", known[i].text);
        weft_buf_free(&out);
    }
}
