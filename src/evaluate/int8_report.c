#include "evaluate/int8_report.h"

#include "base/memory.h"
#include "cli/options/args.h"
#include "evaluate/int8_calibration.h"
#include "evaluate/savings_table.h"

#include <stdio.h>

static const char *const usual_prompts[] = {"a red circle moving left",
                                            "a cat walks over a wooden floor",
                                            "waves on the sea at night, with a lighthouse",
                                            "a crowded street in the rain, seen from above",
                                            "a woman smiles and turns her head",
                                            "a slow flight over snowy mountains",
                                            "a blue car drives along a coast",
                                            "leaves fall from a tree in an empty park",
                                            NULL};

static double number(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

static void print_result(const json_t *r)
{
    static const char *const names[] = {"f32", "bf16"};
    const double layers = number(r, "layers");
    printf("%-22s %12s %8s %8s %8s %10s %11s\n", "int8, all else in", "layers", "FLOPs", "PSNR",
           "least", "PSNR, all", "PSNR, none");
    for (int i = 0; i < 2; i++) {
        const json_t *c = json_object_get(r, names[i]);
        const double kept = (double)json_array_size(json_object_get(c, "kept"));
        printf("%-22s %5.0f of %3.0f %6.0f %% %8.2f %8.2f %10.2f", names[i], layers - kept, layers,
               100 * number(c, "flops"), number(c, "psnr"), number(c, "psnr_least"),
               number(c, "psnr_all"));
        if (i)
            printf(" %11.2f", number(c, "psnr_none"));
        printf("\n");
    }
    printf("%zu layers have smoothed inputs\n", json_object_size(json_object_get(r, "smoothed")));
}

static weft_status calibrate(const weft_args *args, weft_arena *arena, json_t **result)
{
    weft_saving_eval_options o;
    double goal;
    WEFT_TRY(weft_eval_read_videos(args, arena, usual_prompts, &o));
    WEFT_TRY(weft_args_f64(args, "--psnr", 0, 99, &goal));
    WEFT_TRY(weft_calibrate_int8(&o, goal, result));
    print_result(*result);
    return WEFT_OK;
}

weft_status weft_eval_int8(const weft_args *args, json_t **result)
{
    weft_arena *arena = weft_arena_create();
    const weft_status_code status =
        arena ? calibrate(args, arena, result) : weft_no_memory("the evaluation");
    weft_arena_free(arena);
    return status;
}
