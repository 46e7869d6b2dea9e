/* SPDX-License-Identifier: MIT */
/* The checks of ibmsg-doctor on machines made up by hand: what needs hardware to be seen. */
#include <errno.h>
#include <linux/capability.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../../tools/doctor/checks.h"

/* One port of RoCE hardware in good order, for an ordinary user. */
static struct machine *new_machine(void)
{
	struct machine *machine = calloc(1, sizeof(*machine));
	struct device *device;

	assert_non_null(machine);
	device = &machine->devices[machine->device_count++];
	machine->root = machine->softrdma = "";
	strcpy(device->name, "mlx5_0");
	strcpy(device->interface, "eth1");
	device->port_count = 1;
	device->ports[0] = (struct port){1, true, "active", 4096, LAYER_ETHERNET};
	strcpy(machine->kernel.devices[machine->kernel.device_count++], "mlx5_0");
	strcpy(machine->kernel.nodes[machine->kernel.node_count++].name, "rdma_cm");
	machine->kernel.modules[MODULE_UVERBS] = MODULE_LOADED;
	machine->process.memlock = machine->process.memlock_max = UNLIMITED;
	return machine;
}

typedef void check_function(const struct machine *machine, struct report *report);

/* The findings of @check: @problems in number, the last one with @text, and @cure if not NULL. */
static void expect(check_function *check, struct machine *machine, unsigned problems,
		   const char *text, const char *cure)
{
	struct report report = {.check = "test"};
	const struct finding *last;

	check(machine, &report);
	assert_true(report.count > 0);
	last = &report.findings[report.count - 1];
	assert_int_equal(report.problems, problems);
	assert_non_null(strstr(last->text, text));
	if (cure) {
		assert_non_null(last->cure);
		assert_non_null(strstr(last->cure, cure));
	} else {
		assert_null(last->cure);
	}
	report_fini(&report);
}

static void test_choice_usable_device_is_used(void **state)
{
	struct machine *machine = new_machine();

	(void)state;
	expect(check_choice, machine, 0, "connections will use mlx5_0", NULL);
	machine->kernel.nodes[0].error = EACCES;
	expect(check_choice, machine, 0, "softrdma, the software device, will be", NULL);
	machine->choice = CHOICE_OFF;
	expect(check_choice, machine, 1, "SOFTRDMA=off, and no RDMA hardware", "unset SOFTRDMA");
	free(machine);
}

static void test_devices_port_down_is_a_problem_unless_another_is_active(void **state)
{
	struct machine *machine = new_machine();
	struct port *ports = machine->devices[0].ports;

	(void)state;
	ports[0].active = false;
	ports[0].state = "down";
	expect(check_devices, machine, 1, "mlx5_0: RoCE, port 1 is down",
	       "sudo ip link set eth1 up");
	ports[0].layer = LAYER_INFINIBAND;
	expect(check_devices, machine, 1, "mlx5_0: InfiniBand, port 1 is down", "opensm");
	machine->devices[0].port_count = 2;
	ports[1] = (struct port){2, true, "active", 2048, LAYER_INFINIBAND};
	expect(check_devices, machine, 0, "mlx5_0: InfiniBand, port 2 active, MTU 2048", NULL);
	free(machine);
}

static void test_devices_that_do_not_open(void **state)
{
	struct machine *machine = new_machine();

	(void)state;
	machine->devices[0].port_count = 0;
	machine->devices[0].error = EIO;
	expect(check_devices, machine, 1, "does not open: Input/output error", "dmesg");
	/* The files' check has the cure then. */
	strcpy(machine->kernel.nodes[machine->kernel.node_count].name, "uverbs0");
	machine->kernel.nodes[machine->kernel.node_count++].error = EACCES;
	expect(check_devices, machine, 0, "does not open (see files)", NULL);
	free(machine);
}

static void test_gids_device_without_an_address_is_a_problem(void **state)
{
	struct machine *machine = new_machine();
	struct interface *interface = &machine->interfaces[machine->interface_count++];

	(void)state;
	expect(check_gids, machine, 1, "mlx5_0: no address of this host leads to it",
	       "sudo ip address add ADDRESS/24 dev eth1");
	strcpy(interface->name, "eth1");
	interface->address_count = 1;
	strcpy(interface->addresses[0].text, "10.1.2.3");
	strcpy(interface->addresses[0].device, "mlx5_0");
	expect(check_gids, machine, 0, "mlx5_0: reached at 10.1.2.3 (eth1)", NULL);
	free(machine);
}

static void test_memlock_matters_for_hardware(void **state)
{
	struct machine *machine = new_machine();
	struct process *process = &machine->process;

	(void)state;
	process->memlock = 64 << 10;
	expect(check_memlock, machine, 1, "at most 64 KiB, too little", "ulimit -l unlimited");
	process->memlock_max = 64 << 10;
	expect(check_memlock, machine, 1, "at most 64 KiB, too little", "sudo tee /etc/security");
	strcpy(process->container, "docker");
	expect(check_memlock, machine, 1, "at most 64 KiB, too little", "--ulimit memlock=-1");
	process->capabilities = 1ull << CAP_IPC_LOCK;
	expect(check_memlock, machine, 0, "no limit by CAP_IPC_LOCK", NULL);
	strcpy(machine->devices[0].name, "siw0");
	expect(check_memlock, machine, 1, "at most 64 KiB, too little", "memlock");
	machine->choice = CHOICE_ON;
	expect(check_memlock, machine, 0, "softrdma locks none", NULL);
	free(machine);
}

static void test_nodes_forbidden_to_root_is_the_container(void **state)
{
	struct machine *machine = new_machine();

	(void)state;
	machine->kernel.nodes[0].error = EPERM;
	machine->process.is_root = true;
	expect(check_nodes, machine, 1, "rdma_cm: Operation not permitted",
	       "--device=/dev/infiniband/rdma_cm");
	machine->kernel.device_count = 0; /* left over from one that has gone */
	expect(check_nodes, machine, 0, "rdma_cm: Operation not permitted", NULL);
	free(machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_choice_usable_device_is_used),
		cmocka_unit_test(test_devices_port_down_is_a_problem_unless_another_is_active),
		cmocka_unit_test(test_devices_that_do_not_open),
		cmocka_unit_test(test_gids_device_without_an_address_is_a_problem),
		cmocka_unit_test(test_memlock_matters_for_hardware),
		cmocka_unit_test(test_nodes_forbidden_to_root_is_the_container),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
