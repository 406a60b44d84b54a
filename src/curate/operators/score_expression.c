#include "curate/operators/score_expression.h"

#include "base/config.h"
#include "base/memory.h"
#include "base/message.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum step_kind {
    NUMBER,
    NAME,
    NEGATE,
    NOT,
    ADD,
    SUBTRACT,
    MULTIPLY,
    DIVIDE,
    LESS,
    LESS_EQUAL,
    MORE,
    MORE_EQUAL,
    EQUAL,
    UNEQUAL,
    AND,
    OR,
    MIN,
    MAX,
    ABS,
    SQRT,
    LOG,
} step_kind;

/* Steps on a stack of values, in the order of execution. */
typedef struct step {
    step_kind kind;
    double number;
    int name;
} step;

struct weft_expression {
    step step[WEFT_EXPRESSION_STEPS];
    int steps;
    bool condition;
    uint64_t names;
};

typedef struct parser {
    const char *text, *at, *key;
    const char *const *names;
    int name_count, depth;
    weft_expression *out;
} parser;

typedef enum type { TYPE_NUMBER, TYPE_CONDITION } type;

static weft_status parse_or(parser *p, type *is);

static weft_status fail(const parser *p, const char *at, const char *why, const char *word)
{
    const int column = (int)(at - p->text) + 1;
    return weft_error(
        WEFT_MSG_CONFIG_VALUE,
        WEFT_AT(.key = p->key, .value = p->text, WEFT_DETAILS(WEFT_DETAIL("column", column))),
        "column %d of '%s': %s%s", column, p->text, why, word);
}

static void skip_blanks(parser *p)
{
    while (isspace((unsigned char)*p->at))
        p->at++;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Takes `token` if it is next. A word must end there. */
static bool take(parser *p, const char *token)
{
    const size_t n = strlen(token);
    skip_blanks(p);
    if (strncmp(p->at, token, n) != 0 || (is_word(*token) && is_word(p->at[n])))
        return false;
    p->at += n;
    return true;
}

static weft_status emit(parser *p, const char *at, step s)
{
    weft_expression *e = p->out;
    if (e->steps == WEFT_EXPRESSION_STEPS)
        return fail(p, at, "the expression is too long", "");
    e->step[e->steps++] = s;
    return WEFT_OK;
}

static weft_status need(const parser *p, const char *at, type is, type needed)
{
    if (is == needed)
        return WEFT_OK;
    return fail(p, at,
                needed == TYPE_NUMBER ? "a number is needed here, and this is a condition"
                                      : "a condition is needed here, such as motion > 0.1, and "
                                        "this is a number",
                "");
}

static weft_status parse_name(parser *p, const char *at, size_t n)
{
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)(n < 63 ? n : 63), at);
    for (int i = 0; i < p->name_count; i++)
        if (strcmp(p->names[i], word) == 0) {
            p->out->names |= (uint64_t)1 << i;
            return emit(p, at, (step){.kind = NAME, .name = i});
        }
    const char *near = weft_nearest_name(word, p->names, p->name_count);
    weft_buf why = {0};
    weft_buf_printf(&why, "no score is named '%s'", word);
    if (near)
        weft_buf_printf(&why, "; the nearest one is ");
    weft_buf_printf(&why, "%s", near ? near : ". Scores: ");
    for (int i = 0; !near && i < p->name_count; i++)
        weft_buf_printf(&why, "%s%s", i ? ", " : "", p->names[i]);
    const weft_status_code status = fail(p, at, why.data ? why.data : "", "");
    weft_buf_free(&why);
    return status;
}

static weft_status parse_arguments(parser *p, const char *at, step_kind kind)
{
    int count = 0;
    const bool many = kind == MIN || kind == MAX;
    do {
        type is;
        skip_blanks(p);
        const char *from = p->at;
        WEFT_TRY(parse_or(p, &is));
        WEFT_TRY(need(p, from, is, TYPE_NUMBER));
        if (++count > 1)
            WEFT_TRY(emit(p, at, (step){.kind = kind}));
    } while (take(p, ","));
    if (many ? count < 2 : count != 1)
        return fail(p, at,
                    many ? "this function needs at least two arguments"
                         : "this function has exactly one argument",
                    "");
    if (!many)
        WEFT_TRY(emit(p, at, (step){.kind = kind}));
    return take(p, ")") ? WEFT_OK : fail(p, p->at, "a ')' is missing", "");
}

static weft_status parse_word(parser *p)
{
    static const struct {
        const char *name;
        step_kind kind;
    } functions[] = {{"min", MIN}, {"max", MAX}, {"abs", ABS}, {"sqrt", SQRT}, {"log", LOG}};
    const char *at = p->at;
    size_t n = 0;
    while (is_word(at[n]))
        n++;
    p->at += n;
    for (int i = 0; i < WEFT_COUNT(functions); i++)
        if (strlen(functions[i].name) == n && strncmp(at, functions[i].name, n) == 0 &&
            take(p, "("))
            return parse_arguments(p, at, functions[i].kind);
    return parse_name(p, at, n);
}

static weft_status parse_number(parser *p)
{
    char *end;
    const char *at = p->at;
    const double number = strtod(at, &end);
    if (end == at || !isfinite(number) || is_word(*end))
        return fail(p, at, "this is not a number", "");
    p->at = end;
    return emit(p, at, (step){.kind = NUMBER, .number = number});
}

static weft_status parse_factor(parser *p, type *is)
{
    *is = TYPE_NUMBER;
    skip_blanks(p);
    const char *at = p->at;
    if (++p->depth > WEFT_EXPRESSION_DEPTH)
        return fail(p, at, "the expression is nested too deeply", "");
    if (take(p, "-")) {
        skip_blanks(p);
        const char *from = p->at;
        WEFT_TRY(parse_factor(p, is));
        WEFT_TRY(need(p, from, *is, TYPE_NUMBER));
        WEFT_TRY(emit(p, at, (step){.kind = NEGATE}));
    } else if (take(p, "(")) {
        WEFT_TRY(parse_or(p, is));
        if (!take(p, ")"))
            return fail(p, p->at, "a ')' is missing", "");
    } else if (isdigit((unsigned char)*at) || *at == '.') {
        WEFT_TRY(parse_number(p));
    } else if (is_word(*at)) {
        WEFT_TRY(parse_word(p));
    } else if (!*at) {
        return fail(p, at, "the expression ends where a number or a score is needed", "");
    } else {
        const char sign[] = {*at, 0};
        return fail(p, at, "a number or a score is needed in place of ", sign);
    }
    p->depth--;
    return WEFT_OK;
}

/* Chains of operators of one precedence, from left to right. */
typedef struct chain {
    const char *token;
    step_kind kind;
} chain;

static weft_status parse_chain(parser *p, type *is, const chain *tokens,
                               weft_status (*operand)(parser *, type *), type needed)
{
    skip_blanks(p);
    const char *first = p->at;
    WEFT_TRY(operand(p, is));
    for (;;) {
        int i = 0;
        skip_blanks(p);
        const char *at = p->at;
        while (i < 2 && !(tokens[i].token && take(p, tokens[i].token)))
            i++;
        if (i == 2)
            return WEFT_OK;
        WEFT_TRY(need(p, first, *is, needed));
        skip_blanks(p);
        const char *from = p->at;
        WEFT_TRY(operand(p, is));
        WEFT_TRY(need(p, from, *is, needed));
        WEFT_TRY(emit(p, at, (step){.kind = tokens[i].kind}));
    }
}

static weft_status parse_product(parser *p, type *is)
{
    static const chain tokens[2] = {{"*", MULTIPLY}, {"/", DIVIDE}};
    return parse_chain(p, is, tokens, parse_factor, TYPE_NUMBER);
}

static weft_status parse_sum(parser *p, type *is)
{
    static const chain tokens[2] = {{"+", ADD}, {"-", SUBTRACT}};
    return parse_chain(p, is, tokens, parse_product, TYPE_NUMBER);
}

/* The comparison that is next; -1: none. */
static int take_comparison(parser *p)
{
    static const struct {
        const char *token;
        step_kind kind;
    } tokens[] = {{"<=", LESS_EQUAL}, {">=", MORE_EQUAL}, {"==", EQUAL},
                  {"!=", UNEQUAL},    {"<", LESS},        {">", MORE}};
    for (int i = 0; i < WEFT_COUNT(tokens); i++)
        if (take(p, tokens[i].token))
            return (int)tokens[i].kind;
    return -1;
}

static weft_status parse_not(parser *p, type *is)
{
    skip_blanks(p);
    const char *at = p->at;
    if (take(p, "not")) {
        if (++p->depth > WEFT_EXPRESSION_DEPTH)
            return fail(p, at, "the expression is nested too deeply", "");
        skip_blanks(p);
        const char *from = p->at;
        WEFT_TRY(parse_not(p, is));
        p->depth--;
        WEFT_TRY(need(p, from, *is, TYPE_CONDITION));
        return emit(p, at, (step){.kind = NOT});
    }
    WEFT_TRY(parse_sum(p, is));
    skip_blanks(p);
    const char *sign = p->at;
    const int kind = take_comparison(p);
    if (kind < 0)
        return WEFT_OK;
    WEFT_TRY(need(p, at, *is, TYPE_NUMBER));
    skip_blanks(p);
    const char *from = p->at;
    WEFT_TRY(parse_sum(p, is));
    WEFT_TRY(need(p, from, *is, TYPE_NUMBER));
    WEFT_TRY(emit(p, sign, (step){.kind = (step_kind)kind}));
    *is = TYPE_CONDITION;
    skip_blanks(p);
    const char *next = p->at;
    if (take_comparison(p) >= 0)
        return fail(p, next, "a second comparison; join two with `and`", "");
    return WEFT_OK;
}

static weft_status parse_and(parser *p, type *is)
{
    static const chain tokens[2] = {{"and", AND}, {NULL, AND}};
    return parse_chain(p, is, tokens, parse_not, TYPE_CONDITION);
}

static weft_status parse_or(parser *p, type *is)
{
    static const chain tokens[2] = {{"or", OR}, {NULL, OR}};
    return parse_chain(p, is, tokens, parse_and, TYPE_CONDITION);
}

/* Parses the whole text. */
static weft_status parse_all(parser *p, type *is)
{
    WEFT_TRY(parse_or(p, is));
    skip_blanks(p);
    return *p->at ? fail(p, p->at, "the expression should end here, before ", p->at) : WEFT_OK;
}

weft_status weft_expression_parse(const char *text, const char *key, const char *const *names,
                                  int count, weft_expression **out)
{
    parser p = {.text = text, .at = text, .key = key, .names = names, .name_count = count};
    type is = TYPE_NUMBER;
    WEFT_TRY(WEFT_NEW(p.out, 1, "an expression"));
    const weft_status_code status = parse_all(&p, &is);
    if (status != WEFT_OK) {
        weft_free(p.out);
        return status;
    }
    p.out->condition = is == TYPE_CONDITION;
    *out = p.out;
    return WEFT_OK;
}

void weft_expression_free(weft_expression *e)
{
    weft_free(e);
}

bool weft_expression_is_condition(const weft_expression *e)
{
    return e->condition;
}

uint64_t weft_expression_names(const weft_expression *e)
{
    return e->names;
}

/* 1, 0 or NaN of a comparison. */
static double compare(step_kind kind, double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    switch (kind) {
    case LESS: return a < b;
    case LESS_EQUAL: return a <= b;
    case MORE: return a > b;
    case MORE_EQUAL: return a >= b;
    case EQUAL: return a == b;
    default: return a != b;
    }
}

static double join(step_kind kind, double a, double b)
{
    const double decides = kind == OR; /* the operand that decides alone */
    if (a == decides || b == decides)
        return decides;
    return isnan(a) || isnan(b) ? NAN : 1 - decides;
}

static double apply_one(step_kind kind, double a)
{
    switch (kind) {
    case NEGATE: return -a;
    case NOT: return 1 - a;
    case ABS: return fabs(a);
    case SQRT: return sqrt(a);
    default: return log(a);
    }
}

static double apply_two(step_kind kind, double a, double b)
{
    switch (kind) {
    case ADD: return a + b;
    case SUBTRACT: return a - b;
    case MULTIPLY: return a * b;
    case DIVIDE: return a / b;
    case MIN: return isnan(a) || isnan(b) ? NAN : fmin(a, b);
    case MAX: return isnan(a) || isnan(b) ? NAN : fmax(a, b);
    case AND:
    case OR: return join(kind, a, b);
    default: return compare(kind, a, b);
    }
}

static bool has_one_operand(step_kind kind)
{
    return kind == NEGATE || kind == NOT || kind == ABS || kind == SQRT || kind == LOG;
}

double weft_expression_evaluate(const weft_expression *e, const double *values)
{
    double stack[WEFT_EXPRESSION_STEPS];
    int top = -1;
    for (int i = 0; i < e->steps; i++) {
        const step *s = &e->step[i];
        if (s->kind == NUMBER || s->kind == NAME) {
            stack[++top] = s->kind == NUMBER ? s->number : values[s->name];
        } else if (has_one_operand(s->kind)) {
            stack[top] = apply_one(s->kind, stack[top]);
        } else {
            top--;
            stack[top] = apply_two(s->kind, stack[top], stack[top + 1]);
        }
    }
    return stack[0];
}
