/* Results of evaluations as text. */
#include "evaluate/eval_print.h"

#include "base/config.h"
#include "evaluate/image_metrics.h"

#include <stdio.h>
#include <string.h>

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

void weft_eval_print_vae(const json_t *r)
{
    char psnr[2][32];
    printf("VAE over %" PRId64 " clips (%" PRId64
           " skipped): PSNR %s dB, SSIM %.4f; box averages of the same "
           "size: %s dB, %.4f\n",
           (int64_t)number(r, "clips"), (int64_t)number(r, "skipped"),
           weft_psnr_text(json_object_get(r, "psnr"), psnr[0]), number(r, "ssim"),
           weft_psnr_text(json_object_get(r, "box_psnr"), psnr[1]), number(r, "box_ssim"));
    if (number(r, "identical") > 0)
        printf("%" PRId64
               " clips are identical to their reconstruction and are not in the mean PSNR\n",
               (int64_t)number(r, "identical"));
}

/* Each rank evaluates different clips; rank 0 gets the results of all. */
static void print_shares(const json_t *result, const char *key, const char *title)
{
    static const char *const shares[] = {"colour", "shape", "direction", "all"};
    const json_t *s = json_object_get(result, key), *prompts = json_object_get(s, "prompts");
    printf(prompts ? "%-10s %4" PRId64 : "%-10s     ", title, (int64_t)json_integer_value(prompts));
    for (int i = 0; i < WEFT_COUNT(shares); i++)
        if (json_is_number(json_object_get(s, shares[i])))
            printf(" %8.1f %%", 100 * number(s, shares[i]));
        else
            printf(" %10s", "-"); /* images have no direction */
    printf("\n");
}

void weft_eval_print_prompts(const json_t *r)
{
    printf("%-10s %4s %10s %10s %10s %10s\n", "prompts", "", "colour", "shape", "direction", "all");
    print_shares(r, "held_out", "held out");
    print_shares(r, "seen", "seen");
    print_shares(r, "chance", "chance");
}

/* All ranks generate the videos; rank 0 scores them. */

/* Prints a figure of the result, if it was asked for. */
static void print_figure(const json_t *r, const char *key, const char *title)
{
    const json_t *value = json_object_get(r, key);
    if (json_is_number(value))
        printf("%-24s %.4f\n", title, json_number_value(value));
    else if (value)
        printf("%-24s -\n", title);
}

void weft_eval_print_videos(const json_t *r)
{
    static const char *const figures[][2] = {{"flicker", "flicker"},
                                             {"motion_smoothness", "motion smoothness"},
                                             {"clip_score", "CLIP score"},
                                             {"background_consistency", "background consistency"},
                                             {"subject_consistency", "subject consistency"},
                                             {"frechet_distance", "Frechet distance"}};
    if (json_object_get(r, "videos"))
        printf("%-24s %" PRId64 "\n", "videos", (int64_t)number(r, "videos"));
    for (int i = 0; i < WEFT_COUNT(figures); i++)
        print_figure(r, figures[i][0], figures[i][1]);
    if (number(r, "without_prompt") > 0)
        printf("%" PRId64 " videos have no prompt; --prompts FILE gives them\n",
               (int64_t)number(r, "without_prompt"));
}
