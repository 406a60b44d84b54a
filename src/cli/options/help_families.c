/* What the configs of models may hold, from the families' tables. */
#include "cli/verb.h"
#include "model/model.h"

#include <stdio.h>

static const char *type_of(const weft_field *f)
{
    switch (f->type) {
    case WEFT_FIELD_I64: return "integer";
    case WEFT_FIELD_F64: return "number";
    case WEFT_FIELD_BOOL: return "true/false";
    case WEFT_FIELD_I64S: return "integers";
    case WEFT_FIELD_F64S: return "numbers";
    case WEFT_FIELD_BOOLS: return "list of true/false";
    default: return NULL; /* nothing to choose */
    }
}

static void put_default(const weft_field *f, char text[96])
{
    if (f->follows == WEFT_FOLLOWS_LATENTS)
        snprintf(text, 96, "the autoencoder's");
    else if (f->follows == WEFT_FOLLOWS_TEXT)
        snprintf(text, 96, "the text encoder's");
    else if (!f->fallback)
        snprintf(text, 96, "see there");
    else if (f->fallback[0] == '=')
        snprintf(text, 96, "as %s", f->fallback + 1);
    else
        snprintf(text, 96, "%s", f->fallback);
}

static void put_field(const weft_field *f, bool markdown, weft_buf *out)
{
    char fallback[96], range[64] = "";
    const char *type = type_of(f);
    if (!type)
        return;
    put_default(f, fallback);
    if (f->min != 0 || f->max != 0)
        snprintf(range, sizeof range, ", %.15g to %.15g", f->min, f->max);
    if (markdown)
        weft_buf_printf(out, "| `%s` | %s%s | `%s` | %s |\n", f->key, type, range, fallback,
                        f->help);
    else
        weft_buf_printf(out, "  %-28s %s\n  %-28s [%s%s; default %s]\n", f->key, f->help, "", type,
                        range, fallback);
}

void weft_help_families(bool markdown, weft_buf *out)
{
    weft_buf_printf(out, markdown ? "\n## Model classes\n" : "\nmodel classes:\n");
    for (int i = 0; weft_families[i]; i++) {
        const weft_family *f = weft_families[i];
        weft_buf_printf(out,
                        markdown
                            ? "\n`%s` (a %s)\n\n| field of `config` | type | default | meaning "
                              "|\n|---|---|---|---|\n"
                            : "  %s, a %s; its config:\n",
                        f->class_name, weft_role_name(f->role));
        for (int k = 0; k < f->fields; k++)
            put_field(&f->field[k], markdown, out);
    }
}
