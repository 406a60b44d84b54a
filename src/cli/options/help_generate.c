/* What generation can be asked for beside its options: models that are given frames, the rows of
 * samplers and of guidance, what a model's scheduler may be. */
#include "cli/verb.h"
#include "diffusion/guidance.h"
#include "diffusion/scheduler.h"
#include "model/family.h"

static void put_row(bool markdown, const char *name, const char *help, weft_buf *out)
{
    weft_buf_printf(out, markdown ? "| `%s` | %s |\n" : "  %-16s %s\n", name, help);
}

static void put_title(bool markdown, const char *title, weft_buf *out)
{
    weft_buf_printf(out, markdown ? "\n## %s\n\n| name | what it does |\n|---|---|\n" : "\n%s:\n",
                    title);
}

void weft_help_generate(bool markdown, weft_buf *out)
{
    put_title(markdown, "Models that are given frames (--image, --last-image)", out);
    for (int i = 0; weft_families[i]; i++)
        if (weft_families[i]->given)
            put_row(markdown, weft_families[i]->class_name, weft_families[i]->given_help, out);
    put_title(markdown, "Samplers", out);
    for (int i = 0; weft_samplers[i]; i++)
        put_row(markdown, weft_samplers[i]->name, weft_samplers[i]->help, out);
    put_title(markdown, "Guidance", out);
    for (int i = 0; weft_guidances[i]; i++)
        put_row(markdown, weft_guidances[i]->name, weft_guidances[i]->help, out);
    weft_buf_printf(out,
                    markdown ? "\n## Schedulers\n\n" : "\nSchedulers (scheduler_config.json):\n");
    for (int i = 0; weft_scheduler_classes[i].name; i++)
        weft_buf_printf(out, markdown ? "- `%s`: `%s`\n" : "  %s: %s\n",
                        weft_scheduler_classes[i].name, weft_scheduler_classes[i].sampler->name);
}
