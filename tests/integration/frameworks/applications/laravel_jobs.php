<?php
// Laravel's queues and cache with the settings of its skeleton: its worker, and what an application asks of it.

require_once 'Illuminate/Queue/autoload.php';
require_once 'Illuminate/Redis/autoload.php';
require_once 'Illuminate/Cache/autoload.php';
require_once 'Illuminate/Bus/autoload.php';
require_once 'Illuminate/Events/autoload.php';

use Illuminate\Bus\Dispatcher as Bus;
use Illuminate\Bus\Queueable;
use Illuminate\Cache\RedisStore;
use Illuminate\Cache\Repository;
use Illuminate\Container\Container;
use Illuminate\Contracts\Bus\Dispatcher;
use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Events\Dispatcher as Events;
use Illuminate\Queue\Capsule\Manager;
use Illuminate\Queue\InteractsWithQueue;
use Illuminate\Queue\Worker;
use Illuminate\Queue\WorkerOptions;
use Illuminate\Redis\RedisManager;

[, $host, $port, $what] = $argv;
// As config/database.php and config/cache.php have them, with APP_NAME=Laravel.
$redis = new RedisManager(new Container, 'phpredis', [
    'options' => ['cluster' => 'redis', 'prefix' => 'laravel_database_'],
    'default' => ['host' => $host, 'port' => (int) $port, 'database' => 0],
    'cache' => ['host' => $host, 'port' => (int) $port, 'database' => 1],
]);
$client = $redis->connection();
$cache = new Repository(new RedisStore($redis, 'laravel_cache', 'cache'));

class Handler implements ExceptionHandler
{
    public function report(Throwable $e) { fwrite(STDERR, $e->getMessage()."\n"); }
    public function shouldReport(Throwable $e) { return true; }
    public function render($request, Throwable $e) {}
    public function renderForConsole($output, Throwable $e) {}
}

class Add implements ShouldQueue
{
    use InteractsWithQueue, Queueable;

    public function __construct(public array $numbers, public string $kind = 'plain') {}

    public function handle()
    {
        global $client;
        if ($this->kind === 'release' && $this->attempts() === 1) {
            return $this->release(1);
        }
        if ($this->kind === 'second' && $this->attempts() === 1) {
            throw new Exception('meant to fail once');
        }
        if ($this->kind === 'fail') {
            throw new Exception('meant to fail');
        }
        $client->rpush('done', array_sum($this->numbers));
    }
}

$manager = new Manager;
$container = $manager->getContainer();
$container->instance('redis', $redis);
$container->instance('events', $events = new Events($container));
$container->bind(Dispatcher::class, fn () => new Bus($container));
$container->bind(Illuminate\Contracts\Container\Container::class, fn () => $container);
$container->instance(Illuminate\Contracts\Events\Dispatcher::class, $events);
$manager->addConnection(['driver' => 'redis', 'connection' => 'default', 'queue' => 'default', 'retry_after' => 90, 'block_for' => null]);
$queue = $manager->getConnection();
if ($what === 'probe') {
    $queue->push(new Add([1]));
    exit(json_encode('pushed')."\n");
}
if ($what === 'worker') {
    $worker = new Worker($manager->getQueueManager(), $events, new Handler, fn () => false);
    $worker->setCache($cache);
    // As `artisan queue:work --queue=high,default --sleep=0.1 --tries=2 --stop-when-empty` would.
    while (! $client->get('enough')) {
        $worker->runNextJob('default', 'high,default', new WorkerOptions(sleep: 0.1, maxTries: 2));
    }
    exit(0);
}
$worker = proc_open([PHP_BINARY, __FILE__, $host, $port, 'worker'], [1 => STDERR, 2 => STDERR], $pipes);
for ($number = 0; $number < 20; $number++) {
    $queue->push(new Add([$number, 1000]));
    usleep(50000);
}
$queue->bulk([new Add([1, 2]), new Add([3, 4])]);
$queue->pushOn('high', new Add([5, 6]));
$queue->later(1, new Add([1, 1]));
$queue->push(new Add([2, 2], 'release'));
$queue->push(new Add([3, 3], 'second'));
$queue->push(new Add([3, 3], 'fail'));
for ($end = time() + 120; $client->llen('done') < 26 || $queue->size();) {
    if (time() > $end) {
        throw new Exception('gave up waiting for all jobs');
    }
    usleep(50000);
}
$client->set('enough', 1);
proc_close($worker);
$done = array_map('intval', $client->lrange('done', 0, -1));
sort($done);
$queue->later(3600, new Add([9, 9]));
$many = [];
for ($number = 0; $number < 50; $number++) {
    $many["many:$number"] = $number;
}
$seen = ['done' => $done, 'size' => $queue->size(), 'cleared' => $queue->clear('default'), 'after' => $queue->size()];
for ($round = 0; $round < 10; $round++) {
    $cache->putMany($many, 100);
    if ($cache->many(array_keys($many)) != $many) {
        throw new Exception('the cache has other values');
    }
}
$lock = $cache->lock('guarded', 20);
$seen['cache'] = [
    $cache->add('added', 1, 100), $cache->add('added', 2, 100), (int) $cache->increment('added', 5),
    $cache->remember('made', 100, fn () => 'made'), $cache->forever('kept', [1]), $cache->forget('kept'),
    $lock->get(), $cache->lock('guarded', 20)->get(), $lock->release(),
];
$tagged = $cache->tags(['people', 'artists']);
$tagged->put('John', 'x', 100);
$seen['tagged'] = [$tagged->get('John'), $cache->tags('artists')->flush(), $tagged->get('John')];
$seen['limited'] = $redis->connection()->throttle('mail')->allow(2)->every(60)->then(fn () => true, fn () => false);
$seen['flush'] = [$cache->flush(), $cache->get('added')];
echo json_encode($seen), "\n";
