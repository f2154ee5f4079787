/* Counts what the interpreter allocates: every call, not what is left of them, so that short-lived objects show. */
#include <Python.h>

static PyMemAllocatorEx original[2];
static const PyMemAllocatorDomain domains[2] = {PYMEM_DOMAIN_MEM, PYMEM_DOMAIN_OBJ};
static long long calls;

static void *count_malloc(void *context, size_t size) {
    PyMemAllocatorEx *allocator = context;
    calls++;
    return allocator->malloc(allocator->ctx, size);
}

static void *count_calloc(void *context, size_t count, size_t size) {
    PyMemAllocatorEx *allocator = context;
    calls++;
    return allocator->calloc(allocator->ctx, count, size);
}

static void *count_realloc(void *context, void *memory, size_t size) {
    PyMemAllocatorEx *allocator = context;
    calls++;
    return allocator->realloc(allocator->ctx, memory, size);
}

static void count_free(void *context, void *memory) {
    PyMemAllocatorEx *allocator = context;
    allocator->free(allocator->ctx, memory);
}

void start(void) {
    for (int index = 0; index < 2; index++) {
        PyMem_GetAllocator(domains[index], &original[index]);
        PyMemAllocatorEx counting = {&original[index], count_malloc, count_calloc, count_realloc, count_free};
        PyMem_SetAllocator(domains[index], &counting);
    }
}

void stop(void) {
    for (int index = 0; index < 2; index++)
        PyMem_SetAllocator(domains[index], &original[index]);
}

long long counted(void) { return calls; }
