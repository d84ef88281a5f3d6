"""`manage.py simulate_peak`: an evening above capacity, in simulated time."""

from __future__ import annotations

from typing import Any, Final, get_args

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from redis import Redis

from generation.simulation.real_queue import Order, RealQueue
from generation.simulation.report import charts, table
from generation.simulation.scenarios import SCENARIOS, Scenario
from generation.simulation.world import World

MINUTES: Final = 10.0


class Command(BaseCommand):
    """The real queue (Lua, in the Redis of REDIS_URL, under names of its own) and the real
    admission, at 1 : 1,000 of a large installation."""

    help = "Simulate a peak: waiting times, smaller models and refusals by plan."

    def add_arguments(self, parser: CommandParser) -> None:
        names = [scenario.name for scenario in SCENARIOS]
        parser.add_argument("--scenario", choices=names, action="append", help="all of them")
        parser.add_argument("--order", choices=get_args(Order), action="append", help="all of them")
        parser.add_argument("--minutes", type=float, default=MINUTES, help="simulated, of each")
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--charts", action="store_true", help="as Mermaid")

    def handle(self, *args: Any, **options: Any) -> None:
        orders: list[Order] = options["order"] or list(get_args(Order))
        wanted = options["scenario"]
        with Redis.from_url(settings.REDIS_URL) as redis:
            for scenario in SCENARIOS:
                if wanted is None or scenario.name in wanted:
                    self._show(redis, scenario, orders, options)

    def _show(
        self, redis: Redis, scenario: Scenario, orders: list[Order], options: dict[str, Any]
    ) -> None:
        self.stdout.write(f"\n## {scenario.name}: {scenario.says}\n\n")
        worlds: dict[str, World] = {}
        for order in orders:
            self.stderr.write(f"{scenario.name}, {order} …")
            queue = RealQueue(redis, order)
            try:
                world = World(scenario, queue, minutes=options["minutes"], seed=options["seed"])
                world.run()
            finally:
                queue.close()
            worlds[order] = world
        self.stdout.write(table(worlds))
        if options["charts"]:
            self.stdout.write(charts(scenario, worlds))
