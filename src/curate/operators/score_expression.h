/* Expressions over the scores of a shot: "motion > 0.1 and not (blur < 3 or sharpness / 2 < blur)".
 *
 *     condition  = conjunction { "or" conjunction }
 *     conjunction = negation { "and" negation }
 *     negation   = "not" negation | sum [ ("<" | "<=" | ">" | ">=" | "==" | "!=") sum ]
 *     sum        = product { ("+" | "-") product }
 *     product    = factor { ("*" | "/") factor }
 *     factor     = "-" factor | number | name | function "(" condition { "," condition } ")"
 *                | "(" condition ")"
 *     function   = "min" | "max" | "abs" | "sqrt" | "log"
 *
 * Conditions and numbers are different types. */
#ifndef WEFT_CURATE_OPERATORS_SCORE_EXPRESSION_H
#define WEFT_CURATE_OPERATORS_SCORE_EXPRESSION_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { WEFT_EXPRESSION_NAMES = 64, WEFT_EXPRESSION_STEPS = 256, WEFT_EXPRESSION_DEPTH = 32 };

typedef struct weft_expression weft_expression;

/* Parses `text`. Name i of names[count] is value i of weft_expression_evaluate. WEFT_E_CONFIG: the
 * message has `key`, the column from 1 (the detail "column") and, for an unknown name, the nearest
 * known one. */
weft_status weft_expression_parse(const char *text, const char *key, const char *const *names,
                                  int count, weft_expression **out);
void weft_expression_free(weft_expression *expression); /* accepts NULL */
/* True: a condition, whose value is 0 or 1. False: a number. */
bool weft_expression_is_condition(const weft_expression *expression);
/* Bits of the names that occur. */
uint64_t weft_expression_names(const weft_expression *expression);
/* NaN: the value depends on one of `values` that is NaN, or is undefined (0 / 0, log(-1)). "and"
 * and "or" ignore a NaN that cannot change their value. */
double weft_expression_evaluate(const weft_expression *expression, const double *values);

#endif
