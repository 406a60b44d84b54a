#include "doctor/gpu_kernels.h"

#include "doctor/gpu_check.h"
#include "kernel/cuda/cuda_choice.h"
#include "kernel/cuda/cuda_verdict.h"

#include <stdio.h>

static void print_list(void)
{
    printf("\nimplementations, in order of preference without measurements\n");
    for (int i = 0; i < weft_cuda_impl_count(); i++) {
        const weft_cuda_impl *impl = weft_cuda_impl_get(i);
        const int64_t version = impl->version();
        if (i == weft_cuda_impl_own())
            printf("  %-11s kernels of this program\n", impl->name);
        else if (version > 0)
            printf("  %-11s version %" PRId64 "\n", impl->name, version);
        else
            printf("  %-11s not usable\n", impl->name);
    }
}

static bool has_library(weft_op op)
{
    for (int i = 0; i < weft_cuda_impl_own(); i++)
        if (weft_cuda_impl_get(i)->has(op))
            return true;
    return false;
}

static void print_verdicts(void)
{
    for (int op = 0; op < WEFT_OP_COUNT; op++) {
        if (!has_library((weft_op)op))
            continue;
        for (int p = 0; p < WEFT_PRODUCTS_COUNT; p++) {
            printf("  %-22s %-5s", weft_op_get((weft_op)op)->name,
                   weft_cuda_precision_name((weft_products)p));
            for (int i = 0; i < weft_cuda_impl_count(); i++)
                if (weft_cuda_impl_get(i)->has((weft_op)op))
                    printf(
                        " %s:%s", weft_cuda_impl_get(i)->name,
                        weft_verdict_name(weft_cuda_verdict_get((weft_products)p, i, (weft_op)op)));
            printf("\n");
        }
    }
}

static void print_choice(void *user, const weft_cuda_stored_choice *c)
{
    int *count = user;
    printf("  %s: %s, variant %d (", c->key, c->impl, c->variant);
    for (int i = 0; i < c->count; i++)
        printf("%s%s %.1f us", i ? ", " : "", c->measured[i].impl, 1e6 * c->measured[i].seconds);
    printf(")\n");
    (*count)++;
}

weft_status weft_gpu_kernels_print(void)
{
    int count = 0;
    for (int p = 0; p < WEFT_PRODUCTS_COUNT; p++)
        WEFT_TRY(weft_gpu_check_choices((weft_products)p));
    print_list();
    printf("verdicts of ops with several implementations\n");
    print_verdicts();
    printf("stored choices\n");
    WEFT_TRY(weft_cuda_choices_each(print_choice, &count));
    printf(count ? "" : "  none: every op is computed by weft\n");
    return WEFT_OK;
}
