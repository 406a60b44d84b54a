#include "base/message.h"
#include "curate/operators/score_expression.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static const char *const names[] = {"motion", "sharpness", "blur", "nsfw"};
static const double values[] = {0.5, 20, 4, NAN};

static double value_of(const char *text)
{
    weft_expression *e;
    cr_assert_eq(weft_expression_parse(text, "operators.0.expression", names, 4, &e), WEFT_OK, "%s",
                 text);
    const double value = weft_expression_evaluate(e, values);
    weft_expression_free(e);
    return value;
}

Test(score_expression, values_are_those_of_the_grammar)
{
    static const struct {
        const char *text;
        double value;
    } cases[] = {
        {"1 + 2 * 3", 7},
        {"(1 + 2) * 3", 9},
        {"10 - 4 - 3", 3},
        {"16 / 4 / 2", 2},
        {"-blur + 1", -3},
        {"- -2", 2},
        {"sharpness / blur", 5},
        {"min(3, 1, 2) + max(1, blur)", 5},
        {"abs(-2) * sqrt(9)", 6},
        {"log(1)", 0},
        {"motion > 0.1", 1},
        {"motion>=0.5 and motion<=0.5", 1},
        {"blur == 4 and blur != 5", 1},
        {"not motion > 0.1", 0},
        {"not not blur < 5", 1},
        {"motion > 1 or sharpness > 10 and blur > 10", 0},
        {"(motion > 1 or sharpness > 10) and blur > 3", 1},
        {".5e1", 5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_assert_float_eq(value_of(cases[i].text), cases[i].value, 1e-12, "%s: %g", cases[i].text,
                           value_of(cases[i].text));
}

Test(score_expression, a_missing_score_counts_only_where_it_decides)
{
    cr_assert(isnan(value_of("nsfw < 0.5")));
    cr_assert(isnan(value_of("not nsfw < 0.5")));
    cr_assert(isnan(value_of("max(nsfw, 1)")));
    cr_assert(isnan(value_of("nsfw < 0.5 and motion > 0.1")));
    cr_assert_eq(value_of("nsfw < 0.5 and motion > 1"), 0);
    cr_assert_eq(value_of("nsfw < 0.5 or motion > 0.1"), 1);
    cr_assert(isnan(value_of("0 / 0 < 1")));
}

/* The column of an error is the column of the wrong word. */
Test(score_expression, errors_name_the_column)
{
    static const struct {
        const char *text;
        int column;
    } cases[] = {
        {"", 1},
        {"motion >", 9},
        {"motion > 0.1 blur", 14},
        {"motoin > 0.1", 1},
        {"motion > 0.1 and blur", 18},
        {"motion + (blur > 1)", 10},
        {"0 < motion < 1", 12},
        {"not motion", 5},
        {"(motion > 1", 12},
        {"min(motion)", 1},
        {"sqrt(motion, 2)", 1},
        {"1.2.3 > 1", 4},
        {"motion > 1x", 10},
        {"motion $ 1", 8},
        {"motion > 1 && blur > 1", 12},
        {"system(1)", 1},
        {"inf > 1", 1},
        {"1e999 > 1", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_expression *e = NULL;
        cr_assert_eq(weft_expression_parse(cases[i].text, "operators.1.expression", names, 4, &e),
                     WEFT_E_CONFIG, "%s is accepted", cases[i].text);
        cr_assert_eq(weft_error_class(), WEFT_MSG_CONFIG_VALUE);
        cr_assert_str_eq(weft_error_fields()->key, "operators.1.expression");
        cr_assert_eq((int)weft_error_fields()->details[0].number, cases[i].column, "%s: column %g",
                     cases[i].text, weft_error_fields()->details[0].number);
    }
}

Test(score_expression, size_and_depth_are_bounded)
{
    char text[4096];
    weft_expression *e = NULL;
    memset(text, '(', 200);
    strcpy(text + 200, "1");
    cr_assert_eq(weft_expression_parse(text, "k", names, 4, &e), WEFT_E_CONFIG);
    memset(text, '-', 200);
    cr_assert_eq(weft_expression_parse(text, "k", names, 4, &e), WEFT_E_CONFIG);
    strcpy(text, "1");
    for (int i = 0; i < 300; i++)
        strcat(text, " + 1");
    cr_assert_eq(weft_expression_parse(text, "k", names, 4, &e), WEFT_E_CONFIG);
    text[0] = 0;
    for (int i = 0; i < 200; i++)
        strcat(text, "not ");
    strcat(text, "1 > 0");
    cr_assert_eq(weft_expression_parse(text, "k", names, 4, &e), WEFT_E_CONFIG);
}

Test(score_expression, names_that_occur_are_reported)
{
    weft_expression *e;
    cr_assert_eq(weft_expression_parse("blur > 1 or motion > nsfw", "k", names, 4, &e), WEFT_OK);
    cr_assert_eq(weft_expression_names(e), 1u | 4u | 8u);
    cr_assert(weft_expression_is_condition(e));
    weft_expression_free(e);
    cr_assert_eq(weft_expression_parse("blur + 1", "k", names, 4, &e), WEFT_OK);
    cr_assert_not(weft_expression_is_condition(e));
    weft_expression_free(e);
}
